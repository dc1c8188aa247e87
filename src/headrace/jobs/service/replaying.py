"""Jobs handed out once more: what was delivered, or is dead, is its own job again, with all its retries.

Dead letters, of push and pull consumers alike, are requeued, deleted and purged.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from .. import limits
from ..errors import JobsError, bad_request, not_found
from ..matching.payloads import Patterns
from ..models import Consumer
from ..states import TERMINAL, Event, State
from ..store import Row, Tx
from .finding import first_made_from, fitting
from .moves import Move, apply_moves, load
from .removed_jobs import missing

__all__ = [
    "Replayed",
    "Wanted",
    "delete_dead_job",
    "purge_some",
    "replay_messages",
    "replay_some",
    "requeue_dead_job",
    "requeue_some",
]


_ALWAYS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Wanted:
    """Jobs to replay: in these states, made from ``from_us`` until ``until_us``, with such a ``payload``.

    ``rate_per_s``: so many are due in a second, counted from ``begin_us``; 0: all at once.
    """

    states: tuple[State, ...]
    from_us: int
    until_us: int
    begin_us: int
    rate_per_s: float
    dry_run: bool
    payload: Patterns = field(default_factory=dict)

    def due_us(self, number: int) -> int:
        """Time at which the job is due that is replayed as this one, counted from 0."""
        return self.begin_us + (round(number / self.rate_per_s * 1e6) if self.rate_per_s else 0)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Jobs that were, or would be, replayed in one slice; ``at``: where to continue, ``None``: nowhere."""

    states: Mapping[State, int]
    at: int | None

    @property
    def count(self) -> int:
        """Count all of them."""
        return sum(self.states.values())


def replay_some(
    tx: Tx, consumer: Consumer, wanted: Wanted, after: int | None, done: int, now: int
) -> Replayed:
    """Replay a limited number of jobs, oldest first. ``done``: how many were before.

    Those that somebody cancelled are left.
    """
    start = first_made_from(tx, wanted.from_us) if after is None else after
    n = limits.SEARCH_ROWS if wanted.payload else limits.SWEEP_ROWS
    found = [
        tx.all(
            "page_jobs_of_state_before",
            consumer_seq=consumer.seq,
            state=int(state),
            at=start,
            last=_ALWAYS,
            until_us=wanted.until_us,
            n=n,
        )
        for state in wanted.states
    ]
    looked = list(islice(heapq.merge(*found, key=lambda row: row["seq"]), n))
    page, following = fitting(tx, looked, wanted.payload, n, n)
    seqs = [
        row["seq"]
        for row in page
        if row["created_us"] >= wanted.from_us and row["cancelled_us"] is None
    ]
    return _replay(tx, seqs, wanted, done, now, following)


def replay_messages(
    tx: Tx, consumer: Consumer, messages: Sequence[str], wanted: Wanted, done: int, now: int
) -> Replayed:
    """Replay the jobs of these messages, in this order, also cancelled ones; 404 for an unknown message."""
    seqs = []
    for message_id in messages:
        message = tx.one("get_digest", channel_seq=consumer.channel_seq, message_id=message_id)
        if message is None:
            raise not_found(f"message {message_id}", "messages")
        rows = tx.all(
            "page_jobs_of_message_before",
            message_seq=message["seq"],
            consumer_seq=consumer.seq,
            state=0,
            at=0,
            until_us=_ALWAYS,
            n=1,
        )
        seqs += [row["seq"] for row in rows if row["state"] in wanted.states]
    return _replay(tx, seqs, wanted, done, now, None)


def _replay(
    tx: Tx, seqs: Sequence[int], wanted: Wanted, done: int, now: int, at: int | None
) -> Replayed:
    locked = load(tx, seqs)
    rows: list[Row] = [
        locked[seq]
        for seq in seqs
        if seq in locked and locked[seq]["state"] in (TERMINAL & set(wanted.states))
    ]
    moves = [
        Move(row=row, event=Event.REPLAY, due_us=wanted.due_us(done + number))
        for number, row in enumerate(rows)
    ]
    states = Counter(State(row["state"]) for row in rows)
    if not wanted.dry_run:
        apply_moves(tx, moves, now)
    return Replayed(states, at)


def requeue_dead_job(tx: Tx, consumer: Consumer, seq: int, now: int) -> None:
    """Requeue one dead job with all its retries; 400 if it is not dead, 404, 401."""
    row = load(tx, [seq]).get(seq)
    if row is None:
        raise missing(tx, seq)
    if row["consumer_seq"] != consumer.seq:
        raise JobsError(401, "foreign_job", "the job is another consumer's", "jobId")
    if row["state"] != State.DEAD:
        raise bad_request("not_dead", "only a job that is DEAD can be requeued", "jobId")
    apply_moves(tx, [Move(row=row, event=Event.REQUEUE)], now)


def requeue_some(tx: Tx, consumer: Consumer, after: int, now: int) -> tuple[int, int | None]:
    """Requeue a limited number of dead jobs. Returns how many, and where to continue (``None``: done)."""
    rows = tx.all("load_dead", consumer_seq=consumer.seq, after=after, n=limits.SWEEP_ROWS)
    apply_moves(tx, [Move(row=row, event=Event.REQUEUE) for row in rows], now)
    return len(rows), rows[-1]["seq"] if len(rows) == limits.SWEEP_ROWS else None


def purge_some(tx: Tx, consumer: Consumer) -> int:
    """Delete a limited number of dead jobs. Returns how many; fewer than ``SWEEP_ROWS`` were the last."""
    return tx.run("delete_dead", consumer_seq=consumer.seq, n=limits.SWEEP_ROWS)


def delete_dead_job(tx: Tx, consumer: Consumer, seq: int) -> None:
    """Delete one dead job; 404 if the consumer has no such job that is DEAD."""
    row = load(tx, [seq]).get(seq)
    if row is None or row["consumer_seq"] != consumer.seq or row["state"] != State.DEAD:
        raise not_found("dead job", "jobId")
    tx.run("delete_job", seq=seq)
