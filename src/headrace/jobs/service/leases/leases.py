"""The leased API: keep jobs, and finish them while holding the lease. ``claiming`` gives them.

An old lease token gets ``lease_lost`` (409) for that item; the other items of the batch are carried out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ... import ids, limits
from ...errors import bad_request
from ...models import Consumer, rfc3339
from ...policy import retry_delay_s
from ...states import Event, State, failure_event
from ...store import Row, Tx
from ..moves import Move, apply_moves, finish_keys, load, lock_keys, record_outcomes, storable
from ..notices import FAILING_FROM, tell_of_jobs

__all__ = [
    "Failure",
    "Held",
    "Result",
    "check_batch",
    "complete",
    "deadline_text",
    "describe",
    "fail",
    "heartbeat",
    "named_leases",
    "release",
]

_SECOND_US: Final = 1_000_000


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job and the lease under which the caller believes to hold it; ``progress`` is JSON to be shown."""

    seq: int
    lease: str
    progress: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A leased job that failed.

    ``retry_in_s`` overrides the consumer's schedule; ``retry_after_s`` may lengthen it; ``dead`` gives up.
    """

    held: Held
    reason: str
    retry_in_s: float | None = None
    retry_after_s: float | None = None
    dead: bool = False


class Result(msgspec.Struct, frozen=True):
    """The result of one item: ``ok``, ``lease_lost``, ``cancelled`` (409), ``not_found`` (404), …"""

    seq: int
    status: int
    code: str
    state: State | None = None
    due_us: int | None = None
    repeated: bool = False  # it was said, and done, before
    cancelled: bool = False  # the claim ended, and so did the job


def complete(tx: Tx, consumer: Consumer, items: Sequence[Held], now: int) -> list[Result]:
    """Complete leased jobs. Completing again under the same lease is ``ok`` again."""
    rows = tx.all("complete_jobs", consumer_seq=consumer.seq, items=_items(items), now=now)
    done = {row["seq"] for row in rows}
    if any(row["ordering_key"] is not None for row in rows):
        finished = list(load(tx, done).values())
        lock_keys(tx, finished)
        finish_keys(tx, finished, now)
    if consumer.settings.outcomes:
        record_outcomes(tx, sorted(done), now)
    tell_of_jobs(
        tx, {row["seq"]: "recovered" for row in rows if row["retries"] >= FAILING_FROM}, now
    )
    left = [item for item in items if item.seq not in done]
    states = _states(tx, left)
    return [
        Result(item.seq, 200, "ok", State.DELIVERED)
        if item.seq in done
        else _refused(consumer, item, states.get(item.seq), State.DELIVERED)
        for item in items
    ]


def heartbeat(
    tx: Tx, consumer: Consumer, items: Sequence[Held], lease_s: float, now: int
) -> list[Result]:
    """Move the deadlines to ``lease_s`` from now, never past the ceiling counted from the claim.

    Progress that comes with an item replaces what was told before.
    """
    rows = tx.all(
        "heartbeat_jobs",
        consumer_seq=consumer.seq,
        items=_items(items),
        expires=now + round(lease_s * _SECOND_US),
        total=round(limits.LEASE_TOTAL_S_MAX * _SECOND_US),
        now=now,
    )
    deadlines = {row["seq"]: row["lease_expires_us"] for row in rows}
    states = _states(tx, [item for item in items if item.seq not in deadlines])
    results = []
    for item in items:
        if item.seq in deadlines:
            results.append(Result(item.seq, 200, "ok", State.INFLIGHT, deadlines[item.seq]))
            continue
        row = states.get(item.seq)
        if row is not None and _holds(consumer, item, row):
            code = "lease_ceiling" if row["cancelled_us"] is None else "cancelled"
            results.append(Result(item.seq, 409, code, State.INFLIGHT))
        else:
            results.append(_refused(consumer, item, row, None))
    return results


def fail(
    tx: Tx,
    consumer: Consumer,
    failures: Sequence[Failure],
    now: int,
    random: Callable[[], float],
    *,
    note: bool = True,
) -> list[Result]:
    """Fail leased jobs: they are retried when due, or given up for good.

    Failing again under the same lease is ``ok`` again, with the first result, until the job is claimed again.
    ``note`` records an attempt for each; push records more about its own attempts.
    """
    rows = load(tx, (failure.held.seq for failure in failures))
    moves: dict[int, Move] = {}
    for failure in failures:
        row = rows.get(failure.held.seq)
        if row is not None and _holds(consumer, failure.held, row):
            moves[failure.held.seq] = _failed(consumer, failure, row, now, random)
    states = dict(zip(moves, apply_moves(tx, list(moves.values()), now), strict=True))
    for failure in failures:
        if note and failure.held.seq in moves:
            _note_failure(tx, failure, moves[failure.held.seq].row, now)
    return [
        _ended(moves[failure.held.seq], states[failure.held.seq])
        if failure.held.seq in moves
        else _failed_before(consumer, failure.held, rows.get(failure.held.seq))
        for failure in failures
    ]


def _failed(
    consumer: Consumer, failure: Failure, row: Row, now: int, random: Callable[[], float]
) -> Move:
    event = Event.BURY if failure.dead else failure_event(row["retries"], consumer.max_retries)
    if event is not Event.RETRY:
        return Move(row=row, event=event, error=failure.reason, keeps_lease=True)
    delay = failure.retry_in_s
    if delay is None:
        delay = retry_delay_s(
            consumer.settings.retry, row["retries"] + 1, random, failure.retry_after_s
        )
    return Move(
        row=row,
        event=event,
        due_us=now + round(delay * _SECOND_US),
        error=failure.reason,
        keeps_lease=True,
    )


def _ended(move: Move, state: State) -> Result:
    due_us = move.due_us if state is State.QUEUED else None
    return Result(move.row["seq"], 200, "ok", state, due_us, cancelled=_is_cancelled(move, state))


def _is_cancelled(move: Move, state: State) -> bool:
    return state is State.DEAD and move.row["cancelled_us"] is not None


def _failed_before(consumer: Consumer, held: Held, row: Row | None) -> Result:
    """The result of a failure that was reported before, or a refusal."""
    for state in (State.QUEUED, State.DEAD):
        result = _refused(consumer, held, row, state)
        if result.repeated and row is not None:
            due_us = row["due_us"] if state is State.QUEUED else None
            return msgspec.structs.replace(result, due_us=due_us)
    return _refused(consumer, held, row, None)


def _note_failure(tx: Tx, failure: Failure, row: Row, now: int) -> None:
    tx.run(
        "insert_attempt",
        job_seq=row["seq"],
        number=row["claims"],
        kind="pull",
        started_us=row["lease_started_us"],
        duration_us=max(0, now - row["lease_started_us"]),
        status=0,
        error=storable(failure.reason),
        excerpt=None,
    )


def release(
    tx: Tx, consumer: Consumer, items: Sequence[Held], delay_s: float, now: int
) -> list[Result]:
    """Return leased jobs undone; this does not count as a retry."""
    rows = load(tx, (item.seq for item in items))
    due_us = now + round(delay_s * _SECOND_US)
    moves = {
        item.seq: Move(row=rows[item.seq], event=Event.RELEASE, due_us=due_us)
        for item in items
        if item.seq in rows and _holds(consumer, item, rows[item.seq])
    }
    states = dict(zip(moves, apply_moves(tx, list(moves.values()), now), strict=True))
    return [
        _ended(moves[item.seq], states[item.seq])
        if item.seq in moves
        else _refused(consumer, item, rows.get(item.seq), None)
        for item in items
    ]


def check_batch(count: int) -> None:
    """400 for an empty batch and for one that is too large."""
    if not 1 <= count <= limits.BATCH_MAX:
        raise bad_request("invalid_batch", f"1 to {limits.BATCH_MAX} jobs are accepted", "jobs")


def describe(result: Result) -> str | None:
    """A sentence for a rejected item."""
    return {
        "ok": None,
        "lease_lost": "the lease is over: the job was given to another, finished, or sent back",
        "cancelled": "the job was cancelled: stop, and release it",
        "invalid_lease": "a lease is what the claim gave",
        "lease_ceiling": f"a lease cannot be extended past {limits.LEASE_TOTAL_S_MAX:g} s in total",
        "not_found": "the consumer has no such job",
    }[result.code]


def deadline_text(us: int | None) -> str | None:
    """RFC 3339, or an empty string."""
    return None if us is None else rfc3339(us)


def _holds(consumer: Consumer, item: Held, row: Row) -> bool:
    return (
        row["consumer_seq"] == consumer.seq
        and row["state"] == State.INFLIGHT
        and row["lease"] is not None
        and ids.tokens_equal(row["lease"], item.lease)
    )


def _refused(consumer: Consumer, item: Held, row: Row | None, done: State | None) -> Result:
    if row is None or row["consumer_seq"] != consumer.seq:
        return Result(item.seq, 404, "not_found")
    state = State(row["state"])
    known = row["lease"] is not None and ids.tokens_equal(row["lease"], item.lease)
    if known and done is not None and state is done:
        # The answer to an earlier report was lost; nothing else happened to the job.
        return Result(item.seq, 200, "ok", state, repeated=True)
    return Result(item.seq, 409, "lease_lost", state)


def _states(tx: Tx, items: Sequence[Held]) -> dict[int, Row]:
    if not items:
        return {}
    rows = tx.all("states_of", seqs=json.dumps(sorted({item.seq for item in items})))
    return {row["seq"]: row for row in rows}


def named_leases(items: Sequence[Held]) -> dict[str, str]:
    """The values ``seqs`` and ``leases`` of a statement for held jobs."""
    leases = {str(item.seq): item.lease for item in items}
    return {"seqs": "{" + ",".join(leases) + "}", "leases": json.dumps(leases)}


def _items(items: Sequence[Held]) -> str:
    return msgspec.json.encode(items).decode()
