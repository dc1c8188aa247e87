"""Stores the results of push calls: jobs, attempts, and the health of the endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...models import ClaimedJob, Consumer
from ...store import Outcome, Tx
from ..auditing import note_event
from ..definitions.consumers import DEFINITIONS
from ..leases import Ending, Held, Result, completed, end, failed, released
from ..moves import note_attempts, storable
from ..notices import tell_of_consumer

__all__ = ["GONE", "Called", "PushNotes", "Written", "note_all"]

GONE: Final = 410
"""Status of an endpoint that wants no more calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One call of an endpoint. ``status`` is 0 if no answer came.

    With ``own_fault`` this machine could not make it: the job goes back, and it was no attempt.
    """

    job: ClaimedJob
    ok: bool
    status: int
    error: str | None
    excerpt: str | None
    retry_after_s: float | None
    begun_us: int
    duration_us: int
    own_fault: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The results of the jobs, and why the consumer was disabled, if it was."""

    delivered: list[Result]
    failed: list[Result]
    disabled: str | None


@dataclass(frozen=True, slots=True)
class PushNotes:
    """The results of a lane's calls."""

    consumer: Consumer
    calls: Sequence[Called]
    random: Callable[[], float]


def note_all(tx: Tx, items: Sequence[PushNotes]) -> list[Outcome]:
    """End the jobs that some lanes have called, record every attempt, and judge the endpoints.

    A call that ended after its lease was given to another only adds to the list of attempts. An endpoint that
    answered 410 has its consumer disabled at once.
    """
    now = tx.now_us()
    called = [item.calls for item in items]
    made = [[call for call in calls if not call.own_fault] for calls in called]
    ended = end(
        tx,
        [
            (item.consumer, [_ending(call) for call in calls], item.random)
            for item, calls in zip(items, called, strict=True)
        ],
        now,
    )
    known = [
        call
        for calls, results in zip(called, ended, strict=True)
        for call, result in zip(calls, results, strict=True)
        if result.code != "not_found" and not call.own_fault
    ]
    note_attempts(tx, [_attempt(call) for call in known])
    _mark_well(
        tx, [item.consumer.seq for item, calls in zip(items, made, strict=True) if _any_ok(calls)]
    )
    outcomes = []
    for place, (item, results) in enumerate(zip(items, ended, strict=True)):
        delivered: list[Result] = []
        failures: list[Result] = []
        for call, result in zip(called[place], results, strict=True):
            if not call.own_fault:
                (delivered if call.ok else failures).append(result)
        gone = any(call.status == GONE for call in made[place])
        disabled = _judge(tx, item.consumer, made[place], now, gone=gone)
        outcomes.append(Outcome(Written(delivered, failures, disabled)))
    return outcomes


def _ending(call: Called) -> Ending:
    held = Held(call.job.seq, call.job.lease)
    if call.ok:
        return completed(held)
    if call.own_fault:
        return released(held, 0.0)
    return failed(held, call.error or "failed", retry_after_s=call.retry_after_s, noted=False)


def _attempt(call: Called) -> dict[str, Any]:
    """A call as a row of the attempts of its job."""
    return {
        "job_seq": call.job.seq,
        "number": call.job.attempt,
        "kind": "push",
        "started_us": call.begun_us,
        "duration_us": call.duration_us,
        "status": call.status,
        "error": None if call.error is None else storable(call.error),
        "excerpt": call.excerpt,
    }


def _failing_for_us(tx: Tx, consumer: Consumer, now: int) -> int:
    row = tx.one("failing_since", seq=consumer.seq)
    since = None if row is None else row["failing_since_us"]
    return 0 if since is None else now - since


def _any_ok(calls: Sequence[Called]) -> bool:
    return any(call.ok for call in calls)


def _mark_well(tx: Tx, consumers: Sequence[int]) -> None:
    """The endpoints of these consumers work."""
    if consumers and tx.run("mark_consumers_well", seqs=json.dumps(sorted(consumers))):
        tx.ring([DEFINITIONS])


def _judge(
    tx: Tx, consumer: Consumer, calls: Sequence[Called], now: int, *, gone: bool
) -> str | None:
    """Note since when an endpoint fails, if it does. Returns why the consumer is disabled, if it is.

    The database says since when: the definition that the calls were made by may be older.
    """
    if not calls or _any_ok(calls):
        return None
    reason = None
    limit_us = consumer.settings.breaker.disable_after_s * 1e6
    if gone:
        reason = "the endpoint answered 410 Gone"
    elif tx.run("mark_consumer_failing", seq=consumer.seq, now=now):
        tx.ring([DEFINITIONS])
    elif _failing_for_us(tx, consumer, now) >= limit_us:
        reason = f"every call failed for {limit_us / 1e6:g} s"
    if reason is None or not tx.run("disable_consumer", seq=consumer.seq, now=now, reason=reason):
        return None
    named = consumer.channel_id, consumer.consumer_id
    note_event(tx, "consumer_disabled", now, reason, *named)
    tell_of_consumer(tx, consumer.seq, "disabled", reason, now)
    tx.ring([DEFINITIONS])
    return reason
