"""Where the push consumers of a channel that lives in a stream are in it, as the database has it.

The durable consumer at the broker knows better; what is here tells which one that is, from where another one
goes on if it is lost, and from where to deliver again if somebody asks for that.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from .. import limits
from ..errors import not_found
from ..models import Consumer
from ..states import State
from ..store import Row, Tx

__all__ = [
    "Cursor",
    "Follower",
    "Replay",
    "begin",
    "cursor_of",
    "follower_of",
    "followers",
    "forget",
    "forgotten",
    "move",
]

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS: Final = 60  # of a channel's and a consumer's id, in the name of the durable consumer


class Replay(msgspec.Struct, frozen=True, omit_defaults=True):
    """From where to deliver again: a sequence of the stream, or a time (microseconds since 1970)."""

    sequence: int | None = None
    since_us: int | None = None
    asked: str = ""
    """Tells two that ask for the same apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a consumer is: ``created`` tells the stream from another one of its name, and is None if it was
    never seen. All up to ``acked_seq`` were done with when that was noted; the durable consumer knows better.
    """

    consumer_seq: int
    stream: str
    durable: str
    created: str | None
    acked_seq: int | None
    replay: Replay | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A consumer with its cursor, what may hold it up, and its jobs: of messages whose calls failed."""

    consumer_id: str
    paused: bool
    disabled_reason: str | None
    failing_since_us: int | None
    jobs: Mapping[State, int]
    cursor: Cursor


def begin(
    tx: Tx,
    channel_id: str,
    consumer_id: str,
    seq: int,
    stream: str,
    at: tuple[str, int] | None,
    now: int,
) -> None:
    """A new consumer delivers what comes after this sequence of the stream, which was made then (``at``).

    Without it: what is published after ``now``, by the clocks of database and broker.
    """
    names = (_UNUSUAL.sub("_", name)[:_NAME_CHARS] for name in (channel_id, consumer_id))
    created, acked = (None, None) if at is None else at
    first = Replay(since_us=now) if at is None else Replay(sequence=at[1] + 1)
    tx.run(
        "insert_cursor",
        consumer_seq=seq,
        stream=stream,
        durable="-".join(("jobs", *names, secrets.token_hex(4))),
        created=created,
        acked_seq=acked,
        replay=msgspec.json.encode(first).decode(),
    )


def cursor_of(tx: Tx, consumer_seq: int) -> Cursor:
    """Where the consumer is; 404 if its channel lives in the database."""
    row = tx.one("get_cursor", consumer_seq=consumer_seq)
    if row is None:
        raise not_found("cursor: the channel lives in the database", "consumerId")
    return _cursor(row)


def _cursor(row: Row) -> Cursor:
    text = row["replay"]
    return Cursor(
        consumer_seq=row["consumer_seq"],
        stream=row["stream"],
        durable=row["durable"],
        created=row["created"],
        acked_seq=row["acked_seq"],
        replay=None if text is None else msgspec.json.decode(text, type=Replay),
    )


def follower_of(tx: Tx, consumer: Consumer) -> Follower:
    """The consumer with its cursor; 404 if its channel lives in the database."""
    cursor = cursor_of(tx, consumer.seq)
    return Follower(
        consumer_id=consumer.consumer_id,
        paused=consumer.paused,
        disabled_reason=consumer.disabled_reason,
        failing_since_us=consumer.failing_since_us,
        jobs=_jobs_of(tx, {consumer.seq})[consumer.seq],
        cursor=cursor,
    )


def followers(tx: Tx, channel_seq: int, n: int) -> list[Follower]:
    """The first ``n`` consumers of a channel, by their ids; none where the channel lives in the database."""
    rows = tx.all("cursors_of_channel", channel_seq=channel_seq, n=n)
    jobs = _jobs_of(tx, {row["consumer_seq"] for row in rows})
    return [
        Follower(
            consumer_id=row["consumer_id"],
            paused=bool(row["paused"]),
            disabled_reason=row["disabled_reason"],
            failing_since_us=row["failing_since_us"],
            jobs=jobs[row["consumer_seq"]],
            cursor=_cursor(row),
        )
        for row in rows
    ]


def _jobs_of(tx: Tx, seqs: set[int]) -> dict[int, dict[State, int]]:
    found: dict[int, dict[State, int]] = {seq: dict.fromkeys(State, 0) for seq in seqs}
    for row in tx.all("job_counts"):
        if row["consumer_seq"] in seqs:
            found[row["consumer_seq"]][State(row["state"])] = int(row["n"])
    return found


def move(
    tx: Tx,
    consumer: Consumer,
    created: str,
    acked_seq: int,
    told: str | None = None,
    *,
    ended: Replay | None = None,
) -> None:
    """Note where the consumer is; ``told`` is an event of why that is not where it was.

    The replay that was ``ended`` is done with, unless another one was asked for meanwhile.
    """
    tx.run("move_cursor", consumer_seq=consumer.seq, created=created, acked_seq=acked_seq)
    if ended is not None:
        text = msgspec.json.encode(ended).decode()
        tx.run("end_replay", consumer_seq=consumer.seq, replay=text)
    if told is not None:
        tx.run(
            "insert_event",
            now=tx.now_us(),
            kind="cursor_moved",
            channel_id=consumer.channel_id,
            consumer_id=consumer.consumer_id,
            detail=told,
        )


def forgotten(tx: Tx) -> list[Cursor]:
    """Of consumers that were deleted: their durable consumers are still to be."""
    return [_cursor(row) for row in tx.all("forgotten_cursors", n=limits.STREAM_FORGOTTEN)]


def forget(tx: Tx, consumer_seqs: Sequence[int]) -> None:
    """Their durable consumers are gone."""
    for seq in consumer_seqs:
        tx.run("drop_cursor", consumer_seq=seq)
