"""Stores the results of push calls: jobs, attempts, and the health of the endpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...models import ClaimedJob, Consumer
from ...store import Tx
from ..definitions.consumers import DEFINITIONS
from ..leases.leases import Failure, Held, Result, complete, fail
from ..moves import storable
from ..notices import tell_of_consumer

__all__ = ["GONE", "Called", "Written", "attempt_of", "write"]

GONE: Final = 410
"""What an endpoint answers that wants no more calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One call of an endpoint. ``status`` is 0 if no answer came."""

    job: ClaimedJob
    ok: bool
    status: int
    error: str | None
    excerpt: str | None
    retry_after_s: float | None
    begun_us: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class Written:
    """The results of the jobs, and why the consumer was disabled, if it was."""

    delivered: list[Result]
    failed: list[Result]
    disabled: str | None


def write(
    tx: Tx,
    consumer: Consumer,
    calls: Sequence[Called],
    now: int,
    random: Callable[[], float],
    *,
    gone: bool,
) -> Written:
    """Complete the delivered jobs, requeue the others, record every attempt.

    A call that ended after its lease was given to another only adds to the list of attempts. ``gone``: the
    endpoint answered 410, which disables the consumer at once.
    """
    delivered = complete(tx, consumer, [_held(call) for call in calls if call.ok], now)
    failed = fail(
        tx,
        consumer,
        [
            Failure(_held(call), call.error or "failed", retry_after_s=call.retry_after_s)
            for call in calls
            if not call.ok
        ],
        now,
        random,
        note=False,
    )
    known = {result.seq for result in (*delivered, *failed) if result.code != "not_found"}
    _note_attempts(tx, [call for call in calls if call.job.seq in known])
    return Written(delivered, failed, _judge(tx, consumer, calls, now, gone=gone))


def _held(call: Called) -> Held:
    return Held(call.job.seq, call.job.lease)


def attempt_of(call: Called) -> dict[str, Any]:
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


def _note_attempts(tx: Tx, calls: Sequence[Called]) -> None:
    items = [attempt_of(call) for call in calls]
    if items:
        tx.run("insert_attempts", items=json.dumps(items))


def _failing_for_us(tx: Tx, consumer: Consumer, now: int) -> int:
    row = tx.one("failing_since", seq=consumer.seq)
    since = None if row is None else row["failing_since_us"]
    return 0 if since is None else now - since


def _judge(
    tx: Tx, consumer: Consumer, calls: Sequence[Called], now: int, *, gone: bool
) -> str | None:
    """Record since when the endpoint has been failing. Returns why the consumer is disabled, if it is.

    The database says since when: the definition that the calls were made by may be older.
    """
    if any(call.ok for call in calls):
        if tx.run("mark_consumer_well", seq=consumer.seq):
            tx.ring([DEFINITIONS])
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
    tx.run(
        "insert_event",
        now=now,
        kind="consumer_disabled",
        channel_id=consumer.channel_id,
        consumer_id=consumer.consumer_id,
        detail=reason,
    )
    tell_of_consumer(tx, consumer.seq, "disabled", reason, now)
    tx.ring([DEFINITIONS])
    return reason
