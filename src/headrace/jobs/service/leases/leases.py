"""The leased API: claim many jobs at once, and finish them while holding the lease.

Every claim has a new lease token. An old token gets ``lease_lost`` (409) for that item; the other items of
the batch are carried out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ... import ids, limits
from ...errors import bad_request
from ...models import ClaimedJob, Consumer, rfc3339
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
    "claim",
    "claim_each",
    "claimed_job",
    "complete",
    "deadline_text",
    "describe",
    "fail",
    "heartbeat",
    "named_leases",
    "release",
]

_SECOND_US: Final = 1_000_000
_NO_LIMIT: Final = 2**62


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


def claim(tx: Tx, consumer: Consumer, n: int, lease_s: float, now: int) -> list[ClaimedJob]:
    """Lease up to ``n`` ready jobs: highest priority first, and within a priority the oldest.

    Together they have about ``CLAIM_BYTES_MAX`` of payload at most: fewer than ``n`` may be given where more
    are ready.

    Nothing is claimed if the definition has changed since ``consumer`` was read: ``n`` may be by a limit that
    no longer holds, and the consumer may be paused. Whoever changes it rings for those who wait for its jobs.
    """
    lease, expires = ids.new_lease(), _expires(now, lease_s)
    leased = _lease(tx, consumer, n, lease, expires, now, each=False)
    if not leased:
        return []
    rows, messages = _carried(tx, leased)
    return [claimed_job(row, messages[row["message_seq"]], lease, expires) for row in rows]


def claim_each(
    tx: Tx, consumer: Consumer, clients: int, lease_s: float, now: int
) -> list[ClaimedJob]:
    """The same for so many clients that want one job each: a lease for each, and whatever its bytes."""
    lease, expires = ids.new_lease(), _expires(now, lease_s)
    rows = _lease(tx, consumer, clients, lease, expires, now, each=True)
    messages = _messages(tx, rows, _NO_LIMIT) if rows else {}
    return [
        claimed_job(row, messages[row["message_seq"]], f"{lease}.{row['seq']}", expires)
        for row in rows
    ]


def _lease(
    tx: Tx, consumer: Consumer, n: int, lease: str, expires: int, now: int, *, each: bool
) -> list[Row]:
    """The jobs, leased. With ``each`` the lease is followed by a dot and the job's number."""
    if consumer.paused or consumer.disabled_us is not None:
        return []
    tx.run("promote_due", consumer_seq=consumer.seq, now=now, n=limits.SWEEP_ROWS)
    rows = tx.all(
        "claim_jobs",
        consumer_seq=consumer.seq,
        version=consumer.updated_us,
        n=n,
        lease=lease,
        each=each,
        now=now,
        expires=expires,
    )
    return sorted(rows, key=lambda row: (-row["priority"], row["seq"]))


def _expires(now: int, lease_s: float) -> int:
    return now + round(lease_s * _SECOND_US)


def _carried(tx: Tx, rows: Sequence[Row]) -> tuple[Sequence[Row], dict[int, Row]]:
    """The first of these jobs whose payloads one answer carries, at least one, with their messages.

    The others are given back. Where none is above its share of the bytes, all are carried, and nobody has to
    add them up.
    """
    share = limits.CLAIM_BYTES_MAX // len(rows) if len(rows) > 1 else _NO_LIMIT
    messages = _messages(tx, rows, share)
    if all(message["payload"] is not None for message in messages.values()):
        return rows, messages
    sizes = {row["seq"]: row["size"] for row in tx.all("sizes_of", seqs=_message_seqs(rows))}
    total, count = 0, 0
    while count < len(rows) and total < limits.CLAIM_BYTES_MAX:
        total += sizes[rows[count]["message_seq"]]
        count += 1
    if count < len(rows):
        tx.run("unclaim_jobs", seqs=json.dumps([row["seq"] for row in rows[count:]]))
    return rows[:count], _messages(tx, rows[:count], _NO_LIMIT)


def _messages(tx: Tx, rows: Sequence[Row], bytes_each: int) -> dict[int, Row]:
    """The messages of jobs, by number; without the payloads that have more bytes."""
    found = tx.all("messages_of", seqs=_message_seqs(rows), bytes=bytes_each)
    return {row["seq"]: row for row in found}


def _message_seqs(rows: Sequence[Row]) -> str:
    return json.dumps([row["message_seq"] for row in rows])


def claimed_job(row: Row, message: Row, lease: str, expires: int) -> ClaimedJob:
    """A job that was leased, with its message."""
    return ClaimedJob(
        seq=row["seq"],
        lease=lease,
        deadline_us=expires,
        attempt=row["claims"],
        retries=row["retries"],
        priority=row["priority"],
        created_us=row["created_us"],
        message_seq=row["message_seq"],
        message_id=message["message_id"],
        payload=message["payload"],
        content_type=message["content_type"],
        headers=msgspec.json.decode(message["headers"], type=dict[str, str]),
        ordering_key=row["ordering_key"],
    )


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
