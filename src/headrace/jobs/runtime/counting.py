"""What happened to jobs, as counters: one place says which event counts where, and with which labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..metrics import Metrics
from ..models import Consumer
from ..service.leases.expiring import Swept
from ..service.leases.leases import Result
from ..states import Event, State

__all__ = ["count_cancelled", "count_claimed", "count_expired", "count_move", "count_results"]


def count_claimed(metrics: Metrics, consumer: Consumer, jobs: int) -> None:
    """Count jobs that were handed out."""
    if jobs:
        metrics.add("jobs_claimed_total", jobs, **_labels(consumer))


def count_results(
    metrics: Metrics, consumer: Consumer, outcome: str, results: Sequence[Result]
) -> None:
    """Count claims that ended, and rejected items as such. What was said again is not counted again."""
    labels = _labels(consumer)
    done = [result for result in results if result.status == 200 and not result.repeated]
    dead = sum(result.state is State.DEAD for result in done)
    cancelled = sum(result.cancelled for result in done)
    refused = sum(result.status != 200 for result in results)
    if done:
        metrics.add("jobs_completed_total", len(done), **labels, outcome=outcome)
    if refused:
        metrics.add("jobs_completed_total", refused, **labels, outcome="refused")
    if dead > cancelled:
        metrics.add("jobs_dead_total", dead - cancelled, **labels, cause="failed")
    if cancelled:
        metrics.add("jobs_dead_total", cancelled, **labels, cause="cancelled")
    if outcome == "failed" and len(done) > dead:
        metrics.add("jobs_retries_total", len(done) - dead, **labels)


def count_move(metrics: Metrics, consumer: Consumer, event: Event | None) -> None:
    """Count a move of one job by the specified route; ``None`` changed nothing."""
    labels = _labels(consumer)
    if event in {Event.CLAIM, Event.REVIVE}:
        count_claimed(metrics, consumer, 1)
    elif event is Event.COMPLETE:
        metrics.add("jobs_completed_total", 1, **labels, outcome="delivered")
    elif event in {Event.BURY, Event.CANCEL}:
        metrics.add("jobs_completed_total", 1, **labels, outcome="failed")
        cause = "failed" if event is Event.BURY else "cancelled"
        metrics.add("jobs_dead_total", 1, **labels, cause=cause)


def count_cancelled(metrics: Metrics, channel: str, jobs: Mapping[str, int]) -> None:
    """Count waiting jobs that were cancelled, by consumer."""
    for consumer, count in jobs.items():
        labels = {"channel": channel, "consumer": consumer}
        metrics.add("jobs_dead_total", count, **labels, cause="cancelled")


def count_expired(metrics: Metrics, swept: Swept) -> None:
    """Count leases that ended without a word, and what that did to their jobs."""
    for (channel, consumer), states in swept.consumers.items():
        labels = {"channel": channel, "consumer": consumer}
        dead = sum(state is State.DEAD for state in states)
        cancelled = swept.cancelled.get((channel, consumer), 0)
        metrics.add("jobs_lease_expired_total", len(states), **labels)
        if dead > cancelled:
            metrics.add("jobs_dead_total", dead - cancelled, **labels, cause="expired")
        if cancelled:
            metrics.add("jobs_dead_total", cancelled, **labels, cause="cancelled")
        if len(states) > dead:
            metrics.add("jobs_retries_total", len(states) - dead, **labels)


def _labels(consumer: Consumer) -> dict[str, str]:
    return {"channel": consumer.channel_id, "consumer": consumer.consumer_id}
