"""Jobs of stored messages: one for each consumer of the channel that wants the message.

Channels without filters ask no consumer what it wants; ``channel.filtered`` tells them apart. It may say that
there is a filter when the last one has gone with its consumer: that is only slower.

One transaction makes a limited number of jobs, so that nobody waits long for the writer. The following ones
make the rest. Until then a message is *accepted* (status 101, without a time), as is whatever comes after it
in its channel: the jobs of a channel are made in the order of its messages. Whoever has stored the messages
goes on; if that one is gone, upkeep does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from .. import limits
from ..matching.filters import MessageFilter, Takes, compiled
from ..matching.payloads import document_of
from ..models import Waiting
from ..store import Row, Tx

__all__ = [
    "Fanned",
    "Made",
    "affordable",
    "fan_out",
    "first_waiting",
    "follow_later",
    "jobs_made",
    "last_waiting",
    "make_jobs",
    "make_some",
    "note_filters",
    "waiting_channels",
]

_WHOLE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Fanned:
    """A stored message: its number, and what decides about its jobs.

    ``payload``: ``None`` if it is not at hand; it is read where a filter looks into it.
    """

    seq: int
    channel_seq: int
    filtered: bool
    priority: int
    headers: Mapping[str, str]
    ordering_key: str | None = None
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """How many jobs were made of messages that were accepted, and of which channel."""

    channel_id: str
    jobs: int


class _Settings(msgspec.Struct):
    """Of a consumer's settings, what is needed here."""

    filter: MessageFilter = MessageFilter()


def follow_later(tx: Tx, counts: Mapping[int, int]) -> set[int]:
    """The channels, of these with so many messages each, whose messages are only accepted by now.

    Their jobs are too many for one transaction, or earlier messages wait for theirs. The keys are locked.
    """
    if not counts:
        return set()
    rows = tx.all("fan_out_work", channels=json.dumps(sorted(counts)))
    work = {row["channel_seq"]: counts[row["channel_seq"]] * row["consumers"] for row in rows}
    left = tx.once("jobs that may be made", lambda: [limits.FAN_OUT_MAX])  # by all of a transaction
    later = {row["channel_seq"] for row in rows if row["waiting"]}
    for seq in sorted(work, key=lambda seq: work[seq]):  # few do not wait behind many
        if seq in later or work[seq] > left[0]:
            later.add(seq)
        else:
            left[0] -= work[seq]
    return later


def affordable(tx: Tx, channels: Sequence[int]) -> int:
    """How many of the first messages, of these channels, may have their jobs made together; at least one."""
    rows = tx.all("fan_out_work", channels=json.dumps(sorted(set(channels))))
    consumers = {row["channel_seq"]: row["consumers"] for row in rows}
    work = 0
    for count, seq in enumerate(channels):
        work += consumers[seq]
        if count and work > limits.FAN_OUT_MAX:
            return count
    return len(channels)


def make_some(tx: Tx, channel_seq: int, now: int) -> Made:
    """Make the jobs of the first messages of a channel that wait for theirs: a limited number."""
    work = tx.one("fan_out_work", channels=json.dumps([channel_seq]))
    if work is None:  # it was removed, with its messages
        return Made("", 0)
    n = max(1, limits.FAN_OUT_MAX // max(1, work["consumers"]))
    rows = tx.all("accepted_messages", channel_seq=channel_seq, n=n)
    jobs = 0
    if rows:
        tx.run("dispatch_messages", seqs=json.dumps([row["seq"] for row in rows]), now=now)
        messages = [
            Fanned(
                row["seq"],
                channel_seq,
                bool(work["filtered"]),
                row["priority"],
                json.loads(row["headers"]),
                row["ordering_key"],
            )
            for row in rows
        ]
        jobs = fan_out(tx, messages, now).total()
    return Made(work["channel_id"], jobs)


def first_waiting(tx: Tx, channel_seq: int) -> int | None:
    """The number of the first message of a channel that waits for its jobs."""
    (row,) = tx.all("accepted_of_channel", channel_seq=channel_seq)
    return None if row["first_seq"] is None else int(row["first_seq"])


def last_waiting(tx: Tx, channel_seq: int) -> Waiting | None:
    """The last message of a channel that waits for its jobs."""
    (row,) = tx.all("accepted_of_channel", channel_seq=channel_seq)
    return None if row["last_seq"] is None else Waiting(channel_seq, row["last_seq"])


def waiting_channels(tx: Tx) -> list[int]:
    """The channels that have messages waiting for their jobs."""
    return [row["seq"] for row in tx.all("waiting_channels")]


def jobs_made(tx: Tx, messages: Collection[int]) -> Counter[int]:
    """How many jobs each of these messages has, by its number."""
    rows = tx.all("count_jobs_of_messages", seqs=json.dumps(sorted(messages)))
    return Counter({row["message_seq"]: int(row["n"]) for row in rows})


def fan_out(
    tx: Tx, messages: Sequence[Fanned], now: int, *, but: Collection[int] = ()
) -> Counter[int]:
    """Make the jobs of these messages. Returns how many each has, by its number.

    ``but``: consumers that get none of those that are filtered.
    """
    keys = {
        f"{one.channel_seq} {one.ordering_key}" for one in messages if one.ordering_key is not None
    }
    if keys:
        # A transaction that finishes a job of this key waits for this one, or the other way round.
        tx.all("lock_keys", keys=json.dumps(sorted(keys)))
    return make_jobs(tx, messages, now, but)


def make_jobs(
    tx: Tx, messages: Sequence[Fanned], now: int, but: Collection[int] = ()
) -> Counter[int]:
    """As :func:`fan_out`, with the keys locked."""
    seen: set[tuple[int, str]] = set()  # channels and keys of which one of these has jobs
    shown = [
        {
            "place": place,
            "seq": one.seq,
            "channel_seq": one.channel_seq,
            "priority": one.priority,
            "ordering_key": one.ordering_key,
            "behind": _comes_behind(seen, one.channel_seq, one.ordering_key),
        }
        for place, one in enumerate(messages)
        if not one.filtered
    ]
    made: list[Row] = []
    if shown:
        made += tx.all("fan_out_messages", items=msgspec.json.encode(shown).decode(), now=now)
    if chosen := _chosen(tx, [one for one in messages if one.filtered], but):
        made += tx.all("fan_out_chosen", items=msgspec.json.encode(chosen).decode(), now=now)
    if made:
        tx.ring(sorted({row["consumer_seq"] for row in made}))
    return Counter(row["message_seq"] for row in made)


def _comes_behind(seen: set[tuple[int, str]], whose: int, key: str | None) -> int:
    """Whether an earlier one of these has the same key: no job of it is there yet."""
    if key is None:
        return 0
    behind = (whose, key) in seen
    seen.add((whose, key))
    return int(behind)


def _chosen(tx: Tx, messages: Sequence[Fanned], but: Collection[int]) -> list[dict[str, Any]]:
    """For each of these messages the consumers whose filter it fits."""
    seen: set[tuple[int, str]] = set()  # consumers and keys of which one of these is a job
    items: list[dict[str, Any]] = []
    for place, one in enumerate(messages):
        consumers = tx.once(("filters", one.channel_seq), partial(_consumers, tx, one.channel_seq))
        headers = {name.lower(): value for name, value in one.headers.items()}
        document = _Document(tx, one)
        items += (
            {
                "place": place,
                "seq": one.seq,
                "consumer": seq,
                "priority": one.priority,
                "ordering_key": one.ordering_key,
                "behind": _comes_behind(seen, seq, one.ordering_key),
            }
            for seq, takes in consumers
            if seq not in but and takes(headers, document)
        )
    return items


class _Document:
    """The JSON of a message's payload, read once, and only if it is asked for."""

    def __init__(self, tx: Tx, of: Fanned) -> None:
        self._tx, self._of = tx, of
        self._found: list[Any] = []

    def __call__(self) -> Any:
        if not self._found:
            payload = self._of.payload
            if payload is None:
                seqs = json.dumps([self._of.seq])
                (row,) = self._tx.all("messages_of", seqs=seqs, bytes=_WHOLE)
                payload = row["payload"]
            self._found.append(document_of(payload))
        return self._found[0]


def note_filters(tx: Tx, channel_seq: int) -> None:
    """After a change of a consumer's settings: note whether a consumer of the channel has a filter."""
    # Whoever changes another one waits here, and then sees this change.
    tx.run("hold_channel", seq=channel_seq)
    rows = tx.all("filters_of_channel", channel_seq=channel_seq)
    filtered = any(not _wanted(row["settings"]).takes_all for row in rows)
    tx.run("note_filtered", seq=channel_seq, filtered=int(filtered))


def _consumers(tx: Tx, channel_seq: int) -> list[tuple[int, Takes]]:
    rows = tx.all("filters_of_channel", channel_seq=channel_seq)
    return [(row["seq"], _takes(row["settings"])) for row in rows]


@lru_cache(4096)
def _takes(settings: str) -> Takes:
    return compiled(_wanted(settings))


def _wanted(settings: str) -> MessageFilter:
    return msgspec.json.decode(settings, type=_Settings).filter
