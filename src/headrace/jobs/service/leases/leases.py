"""The leased API: keep jobs, and finish them while holding the lease. ``claiming`` gives them.

An old lease token gets ``lease_lost`` (409) for that item; the other items of the batch are carried out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ... import ids, limits
from ...errors import bad_request
from ...models import Consumer, rfc3339
from ...policy import retry_delay_s
from ...states import Event, State, failure_event
from ...store import Outcome, Row, Tx
from ..moves import Move, apply_moves, load, note_attempts, storable
from .claiming import Claim, Who, claim_all, consumers_of

__all__ = [
    "Ending",
    "Endings",
    "Held",
    "Result",
    "check_batch",
    "completed",
    "deadline_text",
    "describe",
    "end",
    "end_all",
    "failed",
    "heartbeat",
    "lease_all",
    "released",
]

_SECOND_US: Final = 1_000_000


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job and the lease under which the caller believes to hold it; ``progress`` is JSON to be shown."""

    seq: int
    lease: str
    progress: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a leased job ends: made by :func:`completed`, :func:`failed` and :func:`released`.

    Attributes:
        held: the job.
        event: COMPLETE, RELEASE, BURY, or RETRY, which is EXHAUST if no retry is left.
        due_s: when it may be handed out again; None: at once, or when the consumer's schedule says.
        retry_after_s: what lengthens that schedule.
        noted: whether a failure is added to the job's attempts.
    """

    held: Held
    event: Event
    reason: str | None = None
    due_s: float | None = None
    retry_after_s: float | None = None
    noted: bool = True


def completed(held: Held) -> Ending:
    """The job was done."""
    return Ending(held, Event.COMPLETE)


def failed(
    held: Held,
    reason: str,
    *,
    retry_in_s: float | None = None,
    retry_after_s: float | None = None,
    dead: bool = False,
    noted: bool = True,
) -> Ending:
    """The job failed.

    ``retry_in_s`` overrides the consumer's schedule; ``retry_after_s`` may lengthen it; ``dead`` gives up.
    ``noted`` adds an attempt to the job; push says more about its own.
    """
    event = Event.BURY if dead else Event.RETRY
    return Ending(held, event, reason, retry_in_s, retry_after_s, noted)


def released(held: Held, delay_s: float) -> Ending:
    """The job is given back undone; this does not count as a retry."""
    return Ending(held, Event.RELEASE, due_s=delay_s)


@dataclass(frozen=True, slots=True)
class Endings:
    """Somebody says how the jobs of a consumer end, each named once. ``random`` is for delays of retries."""

    who: Who
    jobs: Sequence[Ending]
    random: Callable[[], float]


class Result(msgspec.Struct, frozen=True):
    """The result of one item: ``ok``, ``lease_lost``, ``cancelled`` (409), ``not_found`` (404), …"""

    seq: int
    status: int
    code: str
    state: State | None = None
    due_us: int | None = None
    repeated: bool = False  # it was said, and done, before
    cancelled: bool = False  # the claim ended, and so did the job


def lease_all(tx: Tx, items: Sequence[Claim | Endings]) -> list[Outcome]:
    """What workers ask at once, in one transaction: :func:`end_all`, then :func:`.claiming.claim_all`.

    Endings lock ordering keys, after which a claim waits for nobody.
    """
    outcomes: dict[int, Outcome] = {}
    endings = {place: item for place, item in enumerate(items) if isinstance(item, Endings)}
    claims = {place: item for place, item in enumerate(items) if isinstance(item, Claim)}
    if endings:
        outcomes |= zip(endings, end_all(tx, list(endings.values())), strict=True)
    if claims:
        outcomes |= zip(claims, claim_all(tx, list(claims.values())), strict=True)
    return [outcomes[place] for place in range(len(items))]


def end_all(tx: Tx, items: Sequence[Endings]) -> list[Outcome]:
    """End leased jobs: for each its consumer and the results, in the order of its jobs."""
    outcomes, consumers = consumers_of(tx, [item.who for item in items])
    places = list(consumers)
    results = end(
        tx,
        [(consumers[place], items[place].jobs, items[place].random) for place in places],
        tx.now_us(),
    )
    for place, found in zip(places, results, strict=True):
        outcomes[place] = Outcome((consumers[place], found))
    return [outcomes[place] for place in range(len(items))]


def end(
    tx: Tx, asked: Sequence[tuple[Consumer, Sequence[Ending], Callable[[], float]]], now: int
) -> list[list[Result]]:
    """End leased jobs of some consumers; the results of each, in the order of its jobs.

    Completing and failing again under the same lease is ``ok`` again, with the first result, until the job is
    claimed again.
    """
    rows = load(tx, (ending.held.seq for _, endings, _ in asked for ending in endings))
    moves: dict[int, tuple[Ending, Move]] = {}
    for consumer, endings, random in asked:
        for ending in endings:
            row = rows.get(ending.held.seq)
            if row is not None and row["seq"] not in moves and _holds(consumer, ending.held, row):
                moves[row["seq"]] = ending, _move(consumer, ending, row, now, random)
    wanted = any(consumer.settings.outcomes for consumer, _, _ in asked)
    states = dict(
        zip(
            moves,
            apply_moves(tx, [move for _, move in moves.values()], now, outcomes=wanted),
            strict=True,
        )
    )
    note_attempts(
        tx,
        [
            _attempt(ending, move.row, now)
            for ending, move in moves.values()
            if ending.reason is not None and ending.noted
        ],
    )
    done = {id(ending) for ending, _ in moves.values()}
    # One that was named by another, too, is looked at as it is by now.
    left = _states(
        tx, [one.held for _, endings, _ in asked for one in endings if id(one) not in done]
    )
    return [
        [
            _ended(moves[one.held.seq][1], states[one.held.seq])
            if id(one) in done
            else _ended_before(consumer, one, left.get(one.held.seq))
            for one in endings
        ]
        for consumer, endings, _ in asked
    ]


def _move(
    consumer: Consumer, ending: Ending, row: Row, now: int, random: Callable[[], float]
) -> Move:
    event, due_s = ending.event, ending.due_s
    if event is Event.RETRY:
        event = failure_event(row["retries"], consumer.max_retries)
        if event is Event.RETRY and due_s is None:
            retries, after_s = row["retries"] + 1, ending.retry_after_s
            due_s = retry_delay_s(consumer.settings.retry, retries, random, after_s)
    is_queued = event in {Event.RETRY, Event.RELEASE}
    return Move(
        row=row,
        event=event,
        due_us=now + round((due_s or 0.0) * _SECOND_US) if is_queued else None,
        error=ending.reason,
        keeps_lease=event is not Event.RELEASE,  # so that its end is known when it is said again
    )


def _ended(move: Move, state: State) -> Result:
    due_us = move.due_us if state is State.QUEUED else None
    is_cancelled = state is State.DEAD and move.row["cancelled_us"] is not None
    return Result(move.row["seq"], 200, "ok", state, due_us, cancelled=is_cancelled)


def _ended_before(consumer: Consumer, ending: Ending, row: Row | None) -> Result:
    """The result of an ending that was reported before, or a refusal."""
    if ending.event is Event.COMPLETE:
        return _refused(consumer, ending.held, row, State.DELIVERED)
    if ending.event is not Event.RELEASE:
        for state in (State.QUEUED, State.DEAD):
            result = _refused(consumer, ending.held, row, state)
            if result.repeated and row is not None:
                due_us = row["due_us"] if state is State.QUEUED else None
                return msgspec.structs.replace(result, due_us=due_us)
    return _refused(consumer, ending.held, row, None)


def _attempt(ending: Ending, row: Row, now: int) -> dict[str, Any]:
    """A failure as a row of the attempts of its job."""
    return {
        "job_seq": row["seq"],
        "number": row["claims"],
        "kind": "pull",
        "started_us": row["lease_started_us"],
        "duration_us": max(0, now - row["lease_started_us"]),
        "status": 0,
        "error": None if ending.reason is None else storable(ending.reason),
        "excerpt": None,
    }


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


def _items(items: Sequence[Held]) -> str:
    return msgspec.json.encode(items).decode()
