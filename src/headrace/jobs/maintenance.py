"""Background work: expires leases, dispatches scheduled messages, folds counts, enforces retention."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from . import limits
from .archive import Archive
from .errors import JobsError
from .runtime import counting
from .runtime.runtime import Runtime
from .service import fanning, leases, processes, removing, retention
from .service.publishing import publishing, scheduling
from .service.push import call_statistics
from .store import Tx

__all__ = ["Maintenance"]


_LOG: Final = logging.getLogger("headrace.jobs.maintenance")
_TASK: Final = "upkeep"
_TICK_S: Final = 0.25
_PAUSE_S: Final = 1.0  # between ticks while nothing is due; no lease is shorter
_LEAD_S: Final = 10.0
_RENEW_S: Final = 3.0
_FOLD_S: Final = 5.0
_RETAIN_S: Final = 60.0
_CALLS_S: Final = 10.0
_SLICES: Final = (
    10  # of one kind of work in a tick: the other kinds, and the lead, do not wait for all of it
)


@dataclass(slots=True)
class _Sweep:
    """Retention once over all messages: behind which it goes on (None: notes are left), what it removed."""

    after: int | None = 0
    total: retention.Removed = field(default_factory=retention.Removed)


class Maintenance:
    """``run`` until cancelled. ``retain`` can also be called alone, as ``headrace jobs prune`` does."""

    def __init__(
        self, runtime: Runtime, keep: retention.Keep | None = None, archive: Archive | None = None
    ) -> None:
        self._runtime = runtime
        self._keep = keep or retention.Keep()
        self._archive = archive
        self._calls = call_statistics.Teller(runtime.metrics)
        self._leads_until_s = 0.0
        self._last_s: dict[str, float] = {}
        # A lease, and what is scheduled, is at least so long: nothing that begins meanwhile is overlooked.
        self._pause_s_max = min(_PAUSE_S, max(_TICK_S, runtime.options.schedule_min_delay_s))
        self._pause_s = _TICK_S
        self._sweep: _Sweep | None = None  # of retention, under way

    def keep(self, keep: retention.Keep) -> None:
        """Keep data for so long from now on."""
        self._keep = keep

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(self._pause_s)

    async def tick(self) -> None:
        """Do the work that is due now. What fails is tried again later; the rest goes on."""
        attempt = self._runtime.parts.attempt
        self._pause_s = _TICK_S
        upcoming = await attempt("upkeep", lambda: self._runtime.database.read(_upcoming))
        if upcoming is None:
            self._leads_until_s = 0.0
            return
        lease_due, schedule_due, cron_due, accepted, removed, left_s = upcoming
        self._pause_s = min(self._pause_s_max, max(_TICK_S, left_s))
        if lease_due:
            await attempt("leases", self._expire)
        if accepted:
            await attempt("jobs of messages", self._make_jobs)
        if schedule_due:
            await attempt("schedules", self._dispatch)
        if cron_due:
            await attempt("cron", self._fire)
        if removed:
            await attempt("removals", self._remove)
        if self._is_time("keys", _FOLD_S):
            await attempt("keys", self._runtime.keys.note_used)
        if self._is_time("calls", _CALLS_S):
            await attempt("calls", self._tell_calls)
        if not await attempt("lead", self._lead):
            self._leads_until_s = 0.0
            return
        for part, every_s, work in (
            ("counts", _FOLD_S, self._fold),
            ("space", _FOLD_S, self._give_back),
        ):
            if self._is_time(part, every_s) and await attempt(part, work) is None:
                self._last_s.pop(part, None)
        if self._sweep is not None or self._is_time("retention", _RETAIN_S):
            await attempt("retention", self._retain_some)

    async def resign(self) -> None:
        """Let another process lead at once; if the database is away, it does when our time is over."""
        node = self._runtime.node
        try:
            await self._runtime.keys.note_used()
            await self._tell_calls()
        except JobsError as error:
            _LOG.warning("the last use of API keys, or the last calls, are not stored: %s", error)
        if self._leads_until_s:
            self._leads_until_s = 0.0
            try:
                await self._runtime.database.write(
                    lambda tx: tx.run("drop_lead", task=_TASK, holder=node)
                )
            except JobsError as error:
                _LOG.warning("the lead of maintenance ends by itself: %s", error)

    async def _lead(self) -> bool:
        now_s = self._now_s()
        if now_s < self._leads_until_s - _LEAD_S + _RENEW_S:
            return True
        runtime = self._runtime
        leads = await runtime.database.write(
            lambda tx: processes.take_lead(tx, _TASK, runtime.node, _LEAD_S, tx.now_us())
        )
        self._leads_until_s = now_s + _LEAD_S if leads else 0.0
        return leads

    def _now_s(self) -> float:
        return self._runtime.clock.monotonic_ns() / 1e9

    def _is_time(self, what: str, every_s: float) -> bool:
        now_s = self._now_s()
        if now_s - self._last_s.get(what, float("-inf")) < every_s:
            return False
        self._last_s[what] = now_s
        return True

    async def _tell_calls(self) -> None:
        """Add what this process has called since it last told."""
        items, counted = self._calls.news()
        if items:
            await self._runtime.database.write(lambda tx: call_statistics.add(tx, items))
            self._calls.told(counted)

    async def _remove(self) -> None:
        """Remove some slices of what a large consumer leaves."""
        for _ in range(_SLICES):
            if not await self._runtime.in_turn(removing.remove_some):
                return

    async def _give_back(self) -> int:
        """Give the disk what the database does not need any more."""
        return await self._runtime.in_turn(retention.give_back)

    async def _fold(self) -> int:
        return await self._runtime.database.write(lambda tx: tx.run("fold_counters"))

    async def _expire(self) -> None:
        runtime = self._runtime
        for _ in range(_SLICES):
            swept = await runtime.in_turn(lambda tx: leases.expire_leases(tx, tx.now_us()))
            counting.count_expired(runtime.metrics, swept)
            if swept.expired < limits.SWEEP_ROWS:
                return
        self._pause_s = 0.0

    async def _make_jobs(self) -> None:
        """Make some jobs of messages that are stored, and whose publisher may be there no more."""
        database = self._runtime.database
        for channel_seq in await database.read(fanning.waiting_channels):
            last = await database.read(lambda tx, seq=channel_seq: fanning.last_waiting(tx, seq))  # type: ignore[misc]
            if last is None:
                continue
            for _ in range(_SLICES):
                if not await self._runtime.make_some_jobs(last):
                    break
            else:
                self._pause_s = 0.0

    async def _dispatch(self) -> None:
        runtime = self._runtime
        for _ in range(_SLICES):
            due = await runtime.database.read(lambda tx: publishing.find_due(tx, tx.now_us()))
            dispatched = await runtime.in_turn(
                lambda tx, due=due: publishing.dispatch_due(tx, due, tx.now_us())  # type: ignore[misc]
            )
            if not dispatched.messages:
                return
            runtime.metrics.set("scheduler_lag_seconds", dispatched.late_us / 1e6)
            for channel, jobs in dispatched.jobs.items():
                runtime.metrics.add("jobs_enqueued_total", jobs, channel=channel)
        self._pause_s = 0.0

    async def _fire(self) -> None:
        """Fire some slices: a schedule may have missed a great many times."""
        runtime = self._runtime
        for _ in range(_SLICES):
            fired = await runtime.in_turn(lambda tx: scheduling.fire_due(tx, tx.now_us()))
            for channel, count in fired.messages.items():
                runtime.metrics.add("jobs_published_total", count, channel=channel)
            for channel, count in fired.jobs.items():
                runtime.metrics.add("jobs_enqueued_total", count, channel=channel)
            if not fired.due:
                return

    async def retain(self) -> retention.Removed:
        """Archive and remove expired messages. The archive is on disk before anything is removed."""
        sweep = _Sweep()
        while await self._retain_slice(sweep):
            pass
        return sweep.total

    async def _retain_some(self) -> None:
        """Sweep some slices; the next tick goes on with it, also after a failure."""
        self._sweep = sweep = self._sweep or _Sweep()
        for _ in range(_SLICES):
            if not await self._retain_slice(sweep):
                self._sweep = None
                return
        self._pause_s = 0.0

    async def _retain_slice(self, sweep: _Sweep) -> bool:
        """One slice; whether there may be more."""
        if sweep.after is not None:
            sweep.after = await self._retain_window(sweep.after, sweep.total)
            return True
        keep = self._keep
        notes = await self._runtime.in_turn(lambda tx: retention.prune_notes(tx, keep, tx.now_us()))
        self._count(notes, sweep.total)
        return any(count >= limits.SWEEP_ROWS for count in notes.rows.values())

    async def _retain_window(self, after: int, total: retention.Removed) -> int | None:
        keep, database, archive = self._keep, self._runtime.database, self._archive
        find = retention.glance if archive is None else retention.look

        def look(tx: Tx) -> tuple[retention.Window, int]:
            now = tx.now_us()
            return find(tx, keep, after, now), now

        # A read first: where nothing can go, no write of others waits for it.
        window, now = await database.read(look)
        if window.messages:
            if archive is not None:
                await asyncio.to_thread(archive.write, window)
            removed = await self._runtime.in_turn(
                lambda tx: retention.remove(tx, keep, window, now, archived=archive is not None)
            )
            self._count(removed, total)
        return window.after

    def _count(self, removed: retention.Removed, total: retention.Removed) -> None:
        for table, count in removed.rows.items():
            total.add(table, count)
            if count:
                self._runtime.metrics.add("prune_rows_total", count, table=table)


def _upcoming(tx: Tx) -> tuple[bool, bool, bool, bool, bool, float]:
    """Whether a lease has expired, a scheduled message or a schedule is due, messages wait for their jobs,
    something was deleted.

    The last are the seconds until there is something to do.
    """
    row = tx.one("next_upkeep_us")
    if row is None:
        raise AssertionError("an aggregate has one row")
    now = tx.now_us()
    times = [row[column] for column in ("lease_us", "scheduled_us", "cron_us")]
    lease_due, schedule_due, cron_due = (at is not None and at <= now for at in times)
    removed = bool(row["removed"])
    left_us = 0 if removed else min((at - now for at in times if at is not None), default=None)
    return (
        lease_due,
        schedule_due,
        cron_due,
        bool(row["accepted"]),
        removed,
        float("inf") if left_us is None else left_us / 1e6,
    )
