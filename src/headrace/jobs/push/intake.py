"""Where a push lane gets its jobs, and what it tells of its calls: the database, or a stream beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from .. import limits
from ..models import ClaimedJob, Consumer
from ..policy import push_lease_s
from ..runtime.runtime import Runtime
from ..service.leases.claiming import Claim
from ..service.leases.leases import Result
from ..service.push import results as push_results
from ..service.push.results import Called, PushNotes, Written, note_all
from ..service.streamed import failures
from ..states import State
from ..store import Tx
from ..streams.source import StreamSource

__all__ = ["Intake", "StreamIntake", "TableIntake"]


class Intake(Protocol):
    """What a lane asks of where its jobs are. ``claim`` raises TakenError if it may not push."""

    def start(self, wake: Callable[[], None]) -> None:
        """The lane runs; ``wake`` it when there is something to claim."""

    def rung(self) -> None:
        """The database has told of a job."""

    def refresh(self, consumer: Consumer) -> None:
        """The definition was read again."""

    async def claim(self, consumer: Consumer, n: int) -> list[ClaimedJob]:
        """Up to ``n`` jobs to call now."""
        ...

    async def store(self, notes: PushNotes) -> Written:
        """Store what became of calls; those that are stored are noted in ``notes``, also if others fail."""
        ...

    def lose(self, job: ClaimedJob) -> None:
        """Nothing can be stored of this one's call."""

    async def close(self) -> None:
        """The lane has ended."""


class TableIntake:
    """Jobs of the database alone. ``check``: see :class:`.lane.Lane`."""

    def __init__(self, runtime: Runtime, check: Callable[[Tx], None]) -> None:
        self._runtime = runtime
        self._check = check

    def start(self, wake: Callable[[], None]) -> None:
        """The bell wakes the lane."""

    def rung(self) -> None:
        """It asks anyhow."""

    def refresh(self, consumer: Consumer) -> None:
        """It is handed the consumer with each claim."""

    async def claim(self, consumer: Consumer, n: int) -> list[ClaimedJob]:
        """Up to ``n`` jobs, leased."""

        def who(tx: Tx) -> Consumer:
            self._check(tx)
            return consumer

        lease_s = push_lease_s(consumer.settings.timeout_s)
        return (await self._runtime.claim(Claim(who, n, lease_s)))[1]

    async def store(self, notes: PushNotes) -> Written:
        """Store the results, together with those of other lanes."""
        written: Written = await self._runtime.database.write_together(
            note_all, notes, weight=len(notes.calls)
        )
        return written

    def lose(self, job: ClaimedJob) -> None:
        """Its lease ends."""

    async def close(self) -> None:
        """Nothing is left."""


class StreamIntake:
    """Messages of a stream, after the jobs that the database has of earlier ones.

    The database is asked only when it has told of something. ``is_ours``: whether no other process can have
    taken the consumer meanwhile.
    """

    def __init__(
        self,
        runtime: Runtime,
        consumer: Consumer,
        part: str,
        check: Callable[[Tx], None],
        is_ours: Callable[[], bool],
    ) -> None:
        self._runtime = runtime
        self._table = TableIntake(runtime, check)
        self._check = check
        self._is_ours = is_ours
        self._source = StreamSource(runtime, consumer, part, self._woken)
        self._wake: Callable[[], None] = lambda: None
        self._has_rung = True
        self._has_jobs = True
        self._has_failed = False  # the definition may not say so yet

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to fetch."""
        self._wake = wake
        self._source.start()

    def _woken(self) -> None:
        self._wake()

    def rung(self) -> None:
        """There are jobs, or fewer keys to wait for."""
        self._has_rung = self._has_jobs = True

    def refresh(self, consumer: Consumer) -> None:
        """Fetch by this definition."""
        self._source.refresh(consumer)

    async def claim(self, consumer: Consumer, n: int) -> list[ClaimedJob]:
        """Up to ``n`` jobs of the database, then messages of the stream."""
        jobs: list[ClaimedJob] = []
        if self._has_jobs:
            jobs = await self._table.claim(consumer, n)
            self._has_jobs = len(jobs) >= n
        if self._has_rung:
            self._has_rung = False
            try:
                keys = await self._runtime.database.read(
                    lambda tx: failures.unfinished_keys(tx, consumer.seq)
                )
            except BaseException:
                self._has_rung = True
                raise
            self._source.busy(keys)
        if consumer.paused or consumer.disabled_us is not None:
            return jobs
        if not self._is_ours():
            asyncio.get_running_loop().call_later(limits.POLL_S, self._wake)
            return jobs
        return [*jobs, *await self._take(consumer, n - len(jobs))]

    async def _take(self, consumer: Consumer, n: int) -> list[ClaimedJob]:
        """Up to ``n`` messages of the stream to call now; those that have to wait become jobs."""
        taken = self._source.take(n)
        try:
            while asked := self._source.aside():
                moved = await self._runtime.database.write(
                    lambda tx, asked=asked: self._set_aside(tx, consumer, asked)  # type: ignore[misc]
                )
                self._source.set_aside(asked, moved)
                taken += self._source.take(n - len(taken))
        except BaseException:
            self._source.untake(taken)  # or they would be kept for ever, and called by nobody
            raise
        return taken

    def _set_aside(self, tx: Tx, consumer: Consumer, asked: Sequence[ClaimedJob]) -> set[int]:
        self._check(tx)
        return failures.set_aside(tx, consumer, asked, tx.now_us())

    async def store(self, notes: PushNotes) -> Written:
        """Acknowledge what was delivered; what failed becomes a job first."""
        left = notes.left()
        well = [call for call in left if call.job.seq < 0 and call.ok]
        failed = [call for call in left if call.job.seq < 0 and not call.ok]
        table = [call for call in left if call.job.seq > 0]
        delivered = [Result(call.job.seq, 200, "ok", State.DELIVERED) for call in well]
        self._done(notes, well, delivered)
        results: list[Result] = []
        disabled: str | None = None
        if table:
            of_table = PushNotes(notes.consumer, table, notes.random)
            try:
                written = await self._table.store(of_table)
            finally:
                notes.stored.update(of_table.stored)
            delivered += written.delivered
            results += written.failed
            disabled = written.disabled
            notes.stored.update({call.job.seq: Result(call.job.seq, 200, "ok") for call in table})
        was_failing = self._has_failed or notes.consumer.failing_since_us is not None
        if failed or (well and was_failing):
            calls = (*well, *failed)
            self._has_failed = True
            written = await self._runtime.database.write(lambda tx: self._store(tx, notes, calls))
            self._has_failed = not well
            for call in failed:
                if call.job.ordering_key is not None:
                    self._source.hold(call.job.ordering_key)
            self._done(notes, failed, [Result(call.job.seq, 200, "ok") for call in failed])
            results += written.failed
            disabled = disabled or written.disabled
        return Written(delivered, results, disabled)

    def _done(self, notes: PushNotes, calls: Sequence[Called], results: Sequence[Result]) -> None:
        notes.stored.update({result.seq: result for result in results})
        self._source.finish([call.job for call in calls])

    def _store(self, tx: Tx, notes: PushNotes, calls: Sequence[Called]) -> Written:
        gone = any(call.status == push_results.GONE for call in calls)
        return failures.store_failures(
            tx, notes.consumer, calls, tx.now_us(), notes.random, gone=gone
        )

    def lose(self, job: ClaimedJob) -> None:
        """It comes again from where it was."""
        if job.seq < 0:
            self._source.lose(job)

    async def close(self) -> None:
        """Give back what was fetched and is not called."""
        await self._source.close()
