"""Carries out the decisions of the state machine: the one place where jobs change state.

Whoever moves jobs, one or many, loads their rows under a lock; :mod:`..states` says what becomes of each, and
one statement stores all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from .. import limits
from ..errors import JobsError
from ..states import TERMINAL, Event, Hold, State, follow
from ..store import Row, Tx
from .notices import FAILING_FROM, tell_of_jobs

__all__ = [
    "CANCELLED",
    "Move",
    "apply_moves",
    "finish_keys",
    "load",
    "lock_keys",
    "note_attempts",
    "storable",
]


CANCELLED: Final = "cancelled"
_ENDS_A_CLAIM: Final = frozenset({Event.RETRY, Event.RELEASE, Event.EXHAUST, Event.BURY})


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One job, the event that happens to it, and its parameters."""

    row: Row
    event: Event
    due_us: int | None = None  # when it may be handed out again; None: at once
    lease: str | None = None
    lease_expires_us: int | None = None
    extra_s: int = 0
    error: str | None = None
    keeps_lease: bool = False  # so that its end is recognised when it is reported again


class _Stored(msgspec.Struct, kw_only=True, array_like=True):
    """A job as it is from now on, in the order in which ``store_jobs`` takes it."""

    seq: int
    state: int
    hold: int
    retries: int
    claims: int
    due_us: int
    lease: str | None
    lease_started_us: int | None
    lease_expires_us: int | None
    extra_s: int
    last_error: str | None
    cancelled_us: int | None


def apply_moves(tx: Tx, moves: Sequence[Move], now: int, *, outcomes: bool = True) -> list[State]:
    """Carry out ``moves`` (rows of ``load_jobs``, locked). Returns the new state of each.

    ``outcomes``: whether one of the consumers may want those of its jobs recorded.
    """
    if not moves:
        return []
    # A ready job has its key already, and keeps it while it is handed out.
    lock_keys(tx, (move.row for move in moves if not _takes_ready(move)))
    opened: set[tuple[int, str]] = set()  # keys of which one of these is handed out again
    stored = [_moved(tx, move, now, opened) for move in moves]
    tx.run("store_jobs", items=msgspec.json.encode(stored).decode(), now=now)
    finished = [
        move.row for move, item in zip(moves, stored, strict=True) if item.state in TERMINAL
    ]
    if finished:
        finish_keys(tx, finished, now)
        if outcomes:
            tx.run("insert_outcomes", seqs=json.dumps([row["seq"] for row in finished]), now=now)
    told = ((item.seq, _told(move, item)) for move, item in zip(moves, stored, strict=True))
    tell_of_jobs(tx, {seq: kind for seq, kind in told if kind is not None}, now)
    back = {item.seq for item in stored if item.state == State.QUEUED}
    if back:
        tx.ring(sorted({move.row["consumer_seq"] for move in moves if move.row["seq"] in back}))
    return [State(item.state) for item in stored]


def _takes_ready(move: Move) -> bool:
    return move.event is Event.CLAIM and move.row["hold"] == Hold.READY


def _moved(tx: Tx, move: Move, now: int, opened: set[tuple[int, str]]) -> _Stored:
    row = move.row
    cancelled_us, error = row["cancelled_us"], move.error
    if cancelled_us is not None and move.event in _ENDS_A_CLAIM:
        # It was to be cancelled while it ran, and was not completed.
        move = msgspec.structs.replace(move, event=Event.CANCEL, due_us=None)
    if move.event is Event.CANCEL:
        cancelled_us, error = now if cancelled_us is None else cancelled_us, CANCELLED
    elif move.event in {Event.REVIVE, Event.REQUEUE, Event.REPLAY}:
        cancelled_us = None
    rule = follow(row["state"], move.event)
    inflight = rule.target is State.INFLIGHT
    due_us = move.due_us if move.due_us is not None else now
    hold = Hold.READY
    if rule.target is State.QUEUED:
        hold = _hold(tx, row, due_us, now, opened)
    elif (
        inflight
        and row["ordering_key"] is not None
        and not _takes_ready(move)
        and _key_is_busy(tx, row)
    ):
        raise JobsError(
            400,
            "key_busy",
            "invalid transition request: an earlier job of the same ordering key is unfinished",
            "NextState",
        )
    return _Stored(
        seq=row["seq"],
        state=rule.target,
        hold=hold,
        retries=rule.count.after(row["retries"]),
        claims=row["claims"] + inflight,
        due_us=due_us,
        lease=move.lease if inflight else (row["lease"] if move.keeps_lease else None),
        lease_started_us=now if inflight else row["lease_started_us"],
        lease_expires_us=move.lease_expires_us if inflight else None,
        extra_s=move.extra_s if inflight else 0,
        last_error=row["last_error"] if error is None else storable(error),
        cancelled_us=cancelled_us,
    )


def _told(move: Move, item: _Stored) -> str | None:
    """Kind of the notice that others get of the job, if any; who cancels a job knows of it anyhow."""
    if item.state == State.DEAD:
        return None if item.cancelled_us is not None else "dead"
    if item.state == State.DELIVERED:
        return "recovered" if item.retries >= FAILING_FROM else None
    is_failing = move.event is Event.RETRY and item.retries == FAILING_FROM
    return "failing" if is_failing else None


def _hold(tx: Tx, row: Row, due_us: int, now: int, opened: set[tuple[int, str]]) -> Hold:
    if row["ordering_key"] is not None and row["state"] in TERMINAL:
        key = (row["consumer_seq"], row["ordering_key"])
        if key in opened or _key_is_busy(tx, row):
            return Hold.BLOCKED
        opened.add(key)
    return Hold.DELAYED if due_us > now else Hold.READY


def _key_is_busy(tx: Tx, row: Row) -> bool:
    return (
        tx.one(
            "key_is_busy",
            consumer_seq=row["consumer_seq"],
            ordering_key=row["ordering_key"],
            seq=row["seq"],
        )
        is not None
    )


def lock_keys(tx: Tx, rows: Iterable[Row]) -> None:
    """Lock these rows' ordering keys against other transactions that add or finish their jobs."""
    keyed = {
        (row["consumer_seq"], row["ordering_key"])
        for row in rows
        if row["ordering_key"] is not None
    }
    if keyed:
        channels = {seq: _channel_of(tx, seq) for seq in sorted({seq for seq, _ in keyed})}
        tx.all(
            "lock_keys", keys=json.dumps(sorted({f"{channels[seq]} {key}" for seq, key in keyed}))
        )


def _channel_of(tx: Tx, consumer_seq: int) -> int:
    row = tx.one("channel_of_consumer", seq=consumer_seq)
    return 0 if row is None else int(row["channel_seq"])


def finish_keys(tx: Tx, finished: Iterable[Row], now: int) -> None:
    """Release the next job of each ordering key, after those of ``finished`` ended. The keys are locked."""
    keys = {
        (row["consumer_seq"], row["ordering_key"])
        for row in finished
        if row["ordering_key"] is not None
    }
    for consumer_seq, key in sorted(keys):
        if tx.one("key_has_runner", consumer_seq=consumer_seq, ordering_key=key) is not None:
            continue
        following = tx.one("next_of_key", consumer_seq=consumer_seq, ordering_key=key)
        if following is not None:
            hold = Hold.DELAYED if following["due_us"] > now else Hold.READY
            tx.run("set_hold", seq=following["seq"], hold=int(hold))
            tx.ring([consumer_seq])


def note_attempts(tx: Tx, attempts: Sequence[dict[str, Any]]) -> None:
    """Add to the attempts of jobs; each is a row of that table."""
    if attempts:
        tx.run("insert_attempts", items=json.dumps(attempts))


def storable(text: str) -> str:
    """A reason from a client, truncated, and without characters that a database rejects in text."""
    cut = text[: limits.REASON_CHARS_MAX].replace("\0", "\ufffd")
    return cut.encode("utf-8", "replace").decode()


def load(tx: Tx, seqs: Iterable[int]) -> dict[int, Row]:
    """The rows of these jobs, locked, by seq."""
    return {row["seq"]: row for row in tx.all("load_jobs", seqs=json.dumps(sorted(set(seqs))))}
