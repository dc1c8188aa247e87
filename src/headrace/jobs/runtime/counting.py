"""Counters of what happened to jobs: one place says which event counts where, and with which labels."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from .. import limits
from ..metrics import Metrics, Page
from ..models import Consumer
from ..service import page_reads
from ..service.leases import Result, Swept
from ..states import Event, State
from ..store import Database

__all__ = [
    "Depths",
    "count_cancelled",
    "count_claimed",
    "count_expired",
    "count_move",
    "count_results",
]


class Depths:
    """Counts the jobs of consumers: a look at a limited number of them, in slices, one at a time.

    All who ask while a look is under way get what it finds. What was deleted is named no more from then on.
    """

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._looking: asyncio.Task[_Seen] | None = None
        self.counting = asyncio.Lock()
        """Held by who counts the jobs of all consumers, or many could take every reader of the database."""

    async def page(self, *, named: bool) -> Page:
        """Return all that is counted now, and the depths: of each consumer, or all in all."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="jobs-depths")
        seen = await asyncio.shield(self._looking)
        page = self._metrics.page()
        for depth in seen.depths:
            labels = {"channel": depth.channel_id, "consumer": depth.consumer_id}
            page.set("jobs_oldest_ready_age_seconds", depth.age_us / 1e6, **labels)
            for state in State if named else ():
                count = depth.counts.get(state, 0)
                page.set("jobs_queue_depth", count, **labels, state=state.name)
        if named:
            page.left_out += (seen.consumers - len(seen.depths)) * (len(State) + 1)
            return page
        for state in State:
            page.set("jobs_queue_depth", seen.totals.get(state, 0), state=state.name)
        return page

    async def _retire(self) -> None:
        named = sorted(self._metrics.named())
        for at in range(0, len(named), limits.METRICS_SLICE):
            asked = named[at : at + limits.METRICS_SLICE]
            gone = await self._database.read(partial(page_reads.not_there, names=asked))
            self._metrics.retire(gone)

    async def _look(self) -> _Seen:
        await self._retire()
        consumers, totals = await self._database.read(page_reads.depth_totals)
        depths: list[page_reads.Depth] = []
        channel_id = consumer_id = ""
        while (room := limits.METRICS_CONSUMERS_MAX - len(depths)) > 0:
            n = min(room, limits.METRICS_SLICE)
            found = await self._database.read(
                partial(
                    page_reads.depths_behind, channel_id=channel_id, consumer_id=consumer_id, n=n
                )
            )
            depths += found
            if len(found) < n:
                break
            channel_id, consumer_id = found[-1].channel_id, found[-1].consumer_id
        return _Seen(max(consumers, len(depths)), totals, depths)

    async def close(self) -> None:
        """End a look that nobody waits for any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    consumers: int
    totals: Mapping[State, int]
    depths: Sequence[page_reads.Depth]


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
