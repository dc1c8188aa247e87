"""Messages published by many clients at once, fed from a stream, and dispatched at their time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ... import limits
from ...errors import JobsError, not_found
from ...models import NewMessage, Options, Published
from ...states import TERMINAL, Event
from ...store import Outcome, Tx
from ..fanning import Fanned, make_some, matched, stored
from ..moves import Move, apply_moves, load
from ..storing import Fresh, fan_out_to_others, store_messages
from .accepting import check_message, publisher, refuse_drained

__all__ = [
    "Dispatched",
    "Due",
    "MessageRefusedError",
    "Publication",
    "cancel_scheduled",
    "dispatch_due",
    "feed",
    "find_due",
    "publish_all",
]

_DISPATCHED: Final = 102


@dataclass(frozen=True, slots=True)
class Publication:
    """Messages, all or none, from whom they are, and where to.

    ``messages`` is the reason if the request was malformed, which only those learn who may publish. For each
    message ``replays`` says whether the same again gets the first answer.
    """

    channel_id: str
    channel_token: str
    producer_id: str
    producer_token: str
    messages: Sequence[NewMessage] | JobsError
    replays: Sequence[bool]
    options: Options
    granted: bool = False

    @property
    def weight(self) -> int:
        """Weight in a transaction: its messages, and their payloads in parts of 64 KiB."""
        if isinstance(self.messages, JobsError):
            return 1
        payloads = sum(len(message.payload) for message in self.messages)
        return len(self.messages) + (payloads >> 16)


class MessageRefusedError(Exception):
    """A message of a publication is refused, by its number, and so none of them is stored."""

    def __init__(self, number: int, error: JobsError) -> None:
        super().__init__(number, error)
        self.number = number
        self.error = error


def publish_all(tx: Tx, items: Sequence[Publication]) -> list[Outcome]:
    """Store the messages of these with their jobs; see :func:`..storing.store_messages`.

    The outcome of each is what became of its messages, or :class:`MessageRefusedError`, or the JobsError of
    who may not publish.
    """
    now = tx.now_us()
    outcomes: dict[int, Outcome] = {}
    fresh: dict[int, list[Fresh]] = {}
    for place, item in enumerate(items):
        try:
            fresh[place] = _fresh(tx, item, now)
        except (JobsError, MessageRefusedError) as error:
            outcomes[place] = Outcome(error=error)
    stored = iter(store_messages(tx, [one for each in fresh.values() for one in each], now))
    for place, each in fresh.items():
        found = [next(stored) for _ in each]
        refused = next(
            (
                MessageRefusedError(number, one)
                for number, one in enumerate(found)
                if isinstance(one, JobsError)
            ),
            None,
        )
        if refused is not None and len(found) > 1:
            raise refused  # others of it are stored: this ends the transaction, and is told when it is alone
        outcomes[place] = Outcome(found, refused)
    return [outcomes[place] for place in range(len(items))]


def _fresh(tx: Tx, item: Publication, now: int) -> list[Fresh]:
    allowed = publisher(
        tx,
        item.channel_id,
        item.channel_token,
        item.producer_id,
        item.producer_token,
        granted=item.granted,
    )
    if isinstance(item.messages, JobsError):
        raise item.messages
    for number, message in enumerate(item.messages):
        try:
            check_message(message, item.options, now)
        except JobsError as error:
            raise MessageRefusedError(number, error) from error
    return [
        Fresh(
            allowed["channel_seq"],
            allowed["producer_seq"],
            message,
            bool(allowed["filtered"]),
            replay,
        )
        for message, replay in zip(item.messages, item.replays, strict=True)
    ]


def feed(
    tx: Tx,
    channel_id: str,
    messages: Sequence[NewMessage],
    now: int,
    *,
    again: Collection[str | None] = (),
) -> tuple[int, int]:
    """Store messages from a stream; those already stored are left alone, unless their ids are in ``again``.

    Their ids contain the stream, the sequence and the time, so a redelivery adds nothing. Returns how many
    were new, and how many jobs were made or are handed out again.
    """
    channel = tx.one("get_channel", channel_id=channel_id)
    if channel is None:
        raise not_found("channel", "channelId")
    refuse_drained(channel)
    if any(message.message_id is None for message in messages):
        raise AssertionError("a message from a stream has an id made of its sequence")
    seq, filtered = channel["seq"], bool(channel["filtered"])
    stored = store_messages(tx, [Fresh(seq, None, one, filtered) for one in messages], now)
    new = jobs = 0
    for message, one in zip(messages, stored, strict=True):
        if isinstance(one, Published):
            new += 1
            jobs += one.jobs
        elif message.message_id in again:
            jobs += _once_more(tx, seq, message, now)
    return new, jobs


def _once_more(tx: Tx, channel_seq: int, message: NewMessage, now: int) -> int:
    """Jobs of a known message for the consumers that have none, and its finished ones once more; how many."""
    known = tx.one("get_message", channel_seq=channel_seq, message_id=message.message_id)
    if known is None:
        raise AssertionError("a message that is neither new nor there")
    if known["status"] != _DISPATCHED:
        return 0  # they are to be made in any case
    rows = tx.all("jobs_of_messages", seqs=json.dumps([known["seq"]]))
    locked = load(tx, [row["seq"] for row in rows])
    moves = [
        Move(row=row, event=Event.REPLAY)
        for row in locked.values()
        if row["state"] in TERMINAL and row["cancelled_us"] is None
    ]
    apply_moves(tx, moves, now)
    have = {row["consumer_seq"] for row in rows}
    return len(moves) + fan_out_to_others(tx, known["seq"], channel_seq, message, have, now)


@dataclass(frozen=True, slots=True)
class Due:
    """A scheduled message whose time has come, and that time."""

    message: Fanned
    channel_id: str
    scheduled_us: int


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Count of messages that were fanned out, how late the latest of them was, the new jobs by channel."""

    messages: int
    late_us: int
    jobs: Mapping[str, int]


def find_due(tx: Tx, now: int) -> list[Due]:
    """A limited number of the scheduled messages that are due, and for whom they are.

    None of a channel where messages wait for their jobs: they come behind these.
    """
    rows = {row["seq"]: row for row in tx.all("due_messages", now=now, n=limits.SWEEP_ROWS // 10)}
    found = matched(tx, [stored(row, bool(row["filtered"])) for row in rows.values()])
    return [Due(one, rows[one.seq]["channel_id"], rows[one.seq]["scheduled_us"]) for one in found]


def dispatch_due(tx: Tx, due: Sequence[Due], now: int) -> Dispatched:
    """Make the jobs of these scheduled messages, but for those that another process was quicker with."""
    made = make_some(tx, [one.message for one in due], now)
    jobs = Counter[str]()
    dispatched = [one for one in due if one.message.seq in made]
    for one in dispatched:
        jobs[one.channel_id] += made[one.message.seq]
    late_us = max((now - one.scheduled_us for one in dispatched), default=0)
    return Dispatched(len(dispatched), max(0, late_us), jobs)


def cancel_scheduled(tx: Tx, channel_seq: int, message_id: str) -> None:
    """Cancel a scheduled message; 404 if no such message is waiting."""
    if not tx.run("cancel_message", channel_seq=channel_seq, message_id=message_id):
        raise not_found("scheduled message that still waits", "messageId")
