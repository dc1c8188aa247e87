"""A worker: claims as many jobs as it has room for, extends their leases, finishes them, stops gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypedDict

from ...errors import ConfigurationError
from ...handling.callbacks import RaisedError, gives_coroutines
from ...handling.calls import Again, Calls, Single
from ...handling.threads import Threads
from .. import limits
from ..errors import JobsError
from . import tracing
from .aio import Queue
from .calls import CLOSED, LeasedJob, Progress
from .running import Handler, Hook, Over, Turn, called, stopped_by

__all__ = ["Fail", "Worker", "WorkerOptions", "check_options", "parts_of"]

_LOG: Final = logging.getLogger("headrace.jobs.worker")
_AGAIN_S: Final = 1.0
_BATCH: Final = 500
_PROGRESS_S: Final = 1.0  # between two requests that say how far jobs are
_ENDING_S: Final = (
    2.0  # for handlers that are cancelled to end, and for what is given back to arrive
)
_PUSHED: Final = 412  # the consumer does not pull any more
_REFUSED: Final = frozenset({400, 401, 403, 404, _PUSHED})


class Fail(Exception):  # noqa: N818 - it is said, not caught: `raise Fail("…")`
    """Raised by a handler: the job failed with ``reason``; ``dead`` gives it up for good.

    ``retry_in_s`` is 0 s to 7 days; anything else raises ValueError, which fails the job as well.
    """

    def __init__(self, reason: str, *, retry_in_s: float | None = None, dead: bool = False) -> None:
        if retry_in_s is not None and not 0 <= retry_in_s <= limits.RETRY_DELAY_S_MAX:
            raise ValueError(
                f"retry_in_s is {retry_in_s}; accepted: 0 to {limits.RETRY_DELAY_S_MAX:g}"
            )
        super().__init__(reason)
        self.reason = reason
        self.retry_in_s = retry_in_s
        self.dead = dead


class WorkerOptions(TypedDict, total=False):
    """The keywords of ``worker``."""

    concurrency: int
    """Number of jobs that are worked on at once; 10 by default."""

    lease_s: float
    """Seconds for which a job is ours, extended while it is worked on; 30 by default."""

    wait_s: float
    """Seconds that one request for jobs may wait for them; 20 by default."""

    drain_s: float | None
    """Seconds for which handlers may go on after ``stop``; as long as a lease, if not given."""

    around: Sequence[Hook]
    """Middleware: ``hook(job)``, a context manager around each handler, the outermost first."""


class Worker:
    """Runs a handler over the jobs of a queue, up to ``concurrency`` at once.

    A handler that returns completes its job. One that raises :class:`Fail` says how the job failed; any
    other exception fails the job with its text. A plain function runs on a thread; an awaitable that it
    returns is awaited. While handlers run, their leases are extended every third of ``lease_s``.

    Where a job was cancelled, or its lease was lost nevertheless, a coroutine is cancelled. A function sees
    it in ``job.is_cancelled``, and what it returns is not reported.

    ``around`` is entered where the handler runs, for plain functions on their threads, and sees what the
    handler raises. Coroutine functions may have asynchronous context managers, too.

    Attributes:
        completed: jobs that were completed.
        failed: jobs that the handler gave up, or whose handler raised.
        lost: jobs that another worker has taken over.
        cancelled: jobs that were cancelled while their handlers ran.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        *,
        concurrency: int = 10,
        lease_s: float = 30.0,
        wait_s: float = 20.0,
        drain_s: float | None = None,
        around: Sequence[Hook] = (),
    ) -> None:
        check_options(concurrency, drain_s, around)
        self._queue = queue
        is_awaited = gives_coroutines(handler)
        # For plain functions. The loop's own threads are few, and other code needs them.
        self._threads = Threads(concurrency, "job", waits=False)
        self._calls: Calls[Turn] = Calls(
            called(handler, tuple(around), awaited=is_awaited),
            self._failed,
            threads=None if is_awaited else self._threads,
            endings=(
                KeyboardInterrupt,
                GeneratorExit,
            ),  # SystemExit fails its job, and ends no worker
        )
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._drain_s = lease_s if drain_s is None else drain_s
        # By id and lease: a job whose lease was lost may be claimed again while its handler still runs.
        self._running: dict[tuple[str, str], tuple[Turn, asyncio.Task[None]]] = {}
        self._done: list[LeasedJob] = []
        self._stir = asyncio.Event()
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._told = asyncio.Event()  # a handler has said how far it is
        self._hung_up_at = (
            -_ENDING_S
        )  # when a claim was cancelled that the service may still carry out
        self._end_at = 0.0  # when handlers that still run are given up, once it is stopping
        self.completed = 0
        self.failed = 0
        self.lost = 0
        self.cancelled = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._queue!r}>"

    def stop(self) -> None:
        """Claim no more. ``run`` returns when the current jobs are finished, or after ``drain_s``: then those
        that still run are given back undone, which counts as no retry, and their handlers are cancelled.
        """
        if not self._stopping.is_set():
            self._end_at = time.monotonic() + self._drain_s
        self._stopping.set()
        self._stir.set()

    def _signalled(self) -> None:
        """Stop; the second time at once."""
        if self._stopping.is_set():
            self._end_at = 0.0
        elif self._running:
            _LOG.warning(
                "%s: %d jobs have %g s to end; a second signal gives them back at once",
                *(self._queue.name, len(self._running), self._drain_s),
            )
        self.stop()

    async def run(self) -> None:
        """Work until stopped: by ``stop``, or by SIGTERM, in the main thread of a program that does nothing
        else at it. A second SIGTERM gives back at once what still runs.

        Cancelling ends at once, after the jobs were given back, if the service answers within 2 s; otherwise
        others get them when their leases expire.

        Raises JobsError: the service refuses to hand out jobs. If the consumer is pushed to from now on
        (412), the current jobs are finished first.
        """
        with stopped_by((signal.SIGTERM,), self._signalled):
            await self._serve()

    async def _serve(self) -> None:
        """``run`` without an eye on signals."""
        pushed: JobsError | None = None
        background = [asyncio.create_task(self._keep_alive()), asyncio.create_task(self._finish())]
        for part in background:
            part.add_done_callback(lambda _: self._stir.set())
        try:
            while not self._stopping.is_set():
                free = self._concurrency - len(self._running)
                if free <= 0:
                    await self._until_stirred(background)
                    continue
                try:
                    claimed = await self._claim(free)
                except JobsError as error:
                    if error.status != _PUSHED:
                        raise
                    pushed = error
                    break
                for job in claimed:
                    self._start(job)
            while (self._running or self._done) and not self._is_late():
                await self._until_stirred(background)
            if pushed is not None:
                raise pushed
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._give_up()
            self._threads.close()

    def _is_late(self) -> bool:
        return self._stopping.is_set() and time.monotonic() >= self._end_at

    async def _give_up(self) -> None:
        """Give back what still runs, and cancel its handlers. What is done and not reported is done again."""
        if self._done:
            _LOG.warning("%s: %d finished jobs are not reported", self._queue.name, len(self._done))
        left = [turn for turn, _ in self._running.values() if turn.over is None]
        tasks = [self._end(turn, "stopped") for turn in left]
        jobs = [turn.job for turn in left]
        # Not to our own claim, should the service not know yet that nobody waits for its answer.
        delay_s = 1.0 if time.monotonic() - self._hung_up_at < _ENDING_S else 0.0
        try:
            async with asyncio.timeout(_ENDING_S):
                while jobs:
                    batch = _batch_of(jobs)
                    jobs = [job for job in jobs if job not in batch]
                    await self._queue.release(batch, delay_s)
        except (JobsError, TimeoutError) as error:
            _LOG.warning("%s: jobs are left to their leases: %s", self._queue.name, error)
        waited = [task for task in tasks if task is not None]
        if waited:
            await asyncio.wait(waited, timeout=_ENDING_S)
        rest = [task for _, task in self._running.values()]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=_ENDING_S)

    def _end(self, turn: Turn, why: Over) -> asyncio.Task[None] | None:
        """Wait for this handler no more. Returns its task, if that was cancelled."""
        turn.over = why
        running = self._running.get((turn.job.id, turn.job.lease))
        if running is None or turn.on_thread:
            return None  # a function sees so itself, and has its place until it returns
        running[1].cancel()
        return running[1]

    async def _until_stirred(self, background: list[asyncio.Task[None]]) -> None:
        """Wait until a handler ends, a job was completed, or a part of the worker failed."""
        for task in background:
            if task.done():
                task.result()
        self._stir.clear()
        left_s = None
        if self._stopping.is_set() and math.isfinite(self._end_at):
            left_s = max(0.0, self._end_at - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._stir.wait()

    async def _claim(self, free: int) -> list[LeasedJob]:
        """Claim; stop waiting when the worker is stopped."""
        claim = asyncio.create_task(
            self._queue.claim(min(free, _BATCH), lease_s=self._lease_s, wait_s=self._wait_s)
        )
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([claim, stop], return_when=asyncio.FIRST_COMPLETED)
            if not claim.done():
                # Jobs that a cancelled claim may have obtained are handed out again after their lease.
                self._hung_up_at = time.monotonic()
                return []
            return claim.result()
        except asyncio.CancelledError:
            self._hung_up_at = time.monotonic()
            raise
        except JobsError as error:
            if error.status in _REFUSED or error.code == CLOSED:
                raise
            _LOG.warning("%s: no jobs for now: %s", self._queue.name, error)
            await asyncio.wait([stop], timeout=_AGAIN_S)
            return []
        finally:
            for task in (claim, stop):
                task.cancel()
            await asyncio.gather(claim, stop, return_exceptions=True)

    def _start(self, job: LeasedJob) -> None:
        loop = asyncio.get_running_loop()
        notify = functools.partial(_tell_loop, loop, self._told.set)
        turn = Turn(job, self._stopping.is_set, notify)
        task = asyncio.create_task(self._work(turn), name=f"job-{job.id}")
        self._running[job.id, job.lease] = (turn, task)

    async def _work(self, turn: Turn) -> None:
        job = turn.job
        try:
            with tracing.processing(self._queue.name, job.id, job.attempt, job.headers):
                # A lane of its own: it is cancelled with its job.
                await self._calls.work(Single(turn))
                if turn.failure is not None:
                    raise turn.failure
        except asyncio.CancelledError as raised:
            if turn.over is not None:
                raise
            await self._report(turn, raised)  # it has cancelled itself
        except Exception as raised:
            await self._report(turn, raised)
        else:
            if turn.over is None:
                self._done.append(job)
                self._ready.set()
        finally:
            self._running.pop((job.id, job.lease), None)
            self._stir.set()

    async def _failed(self, turn: Turn, error: Exception, again: Again) -> None:
        """Note how the handler failed: the service says what follows."""
        turn.failure = error

    async def _report(self, turn: Turn, raised: BaseException) -> None:
        if turn.over is not None:
            return  # nobody waits for it: the service would refuse what is said of it
        job = turn.job
        if isinstance(raised, RaisedError) and raised.__cause__ is not None:
            raised = raised.__cause__
        if isinstance(raised, Fail):
            failure = raised
        else:
            failure = Fail(_reason(raised))
            self._log(job, raised, failure.reason)
        self.failed += 1
        while True:
            try:
                await self._queue.fail(
                    [job], failure.reason, retry_in_s=failure.retry_in_s, dead=failure.dead
                )
            except JobsError as error:
                _LOG.warning("%s: job %s: %s", self._queue.name, job.id, error)
                if 0 < error.status < 500 or error.code == CLOSED:
                    return
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    def _log(self, job: LeasedJob, raised: BaseException, reason: str) -> None:
        """Log what a handler raised. A formatter of logs may fail at it: it is reported all the same."""
        try:
            _LOG.warning("%s: job %s failed", self._queue.name, job.id, exc_info=raised)
        except Exception:
            _LOG.warning("%s: job %s failed: %s", self._queue.name, job.id, reason)

    async def _finish(self) -> None:
        """Complete finished jobs in batches: all that ended meanwhile go together."""
        while True:
            if not self._done:
                self._ready.clear()
                await self._ready.wait()
                continue
            jobs = _batch_of(self._done)
            try:
                results = await self._queue.complete(jobs)
            except JobsError as error:
                if error.code == CLOSED:
                    raise
                _LOG.warning("%s: completing waits: %s", self._queue.name, error)
                await asyncio.sleep(_AGAIN_S)
                continue
            self._done = [job for job in self._done if job not in jobs]
            self.completed += sum(result.status == 200 for result in results)
            self.lost += sum(result.status != 200 for result in results)
            self._stir.set()

    async def _keep_alive(self) -> None:
        """Extend leases every third of one, and say how far jobs are soon after their handlers have."""
        beat_at = time.monotonic() + self._lease_s / 3
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, beat_at - time.monotonic())):
                    await self._told.wait()
            self._told.clear()
            turns = [turn for turn, _ in self._running.values() if turn.over is None]
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + self._lease_s / 3
                await self._beat([turn.job for turn in turns] + self._done)
            else:
                await self._beat([turn.job for turn in turns if turn.news() is not None])
                await asyncio.sleep(max(0.0, min(_PROGRESS_S, beat_at - time.monotonic())))

    async def _beat(self, held: list[LeasedJob]) -> None:
        while held:
            jobs = _batch_of(held)
            held = [job for job in held if job not in jobs]
            await self._extend(jobs)

    async def _extend(self, jobs: list[LeasedJob]) -> None:
        turns = {
            job.id: self._running[job.id, job.lease][0]
            for job in jobs
            if (job.id, job.lease) in self._running
        }
        told: dict[str, Progress] = {}
        for job_id, turn in turns.items():
            if (news := turn.news()) is not None:
                told[job_id] = news
        try:
            results = await self._queue.heartbeat(jobs, self._lease_s, progress=told)
        except JobsError as error:
            _LOG.warning("%s: the heartbeat did not arrive: %s", self._queue.name, error)
            return
        for job, result in zip(jobs, results, strict=True):
            if job.id not in turns or turns[job.id].over is not None:
                continue
            turn = turns[job.id]
            if result.status == 200:
                turn.was_sent(told.get(job.id))
            elif (job.id, job.lease) in self._running:
                if result.code == "cancelled":
                    self.cancelled += 1
                    # Before its handler ends: a worker that stops then would leave it to the lease.
                    await self._give_back(job)
                    self._end(turn, "cancelled")
                else:
                    self.lost += 1
                    self._end(turn, "lost")

    async def _give_back(self, job: LeasedJob) -> None:
        """End the claim of a job that was cancelled; otherwise its lease does."""
        try:
            await self._queue.release([job])
        except JobsError as error:
            _LOG.warning("%s: job %s: %s", self._queue.name, job.id, error)


def _reason(error: BaseException) -> str:
    """Describe an exception for the report; its text may raise one itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as other:
        return f"{type(error).__name__}, whose text cannot be made: {type(other).__name__}"


def parts_of(worker: Worker) -> tuple[Callable[[], Awaitable[None]], Callable[[], None]]:
    """Return what runs a worker without an eye on signals, and what is to be called at one."""
    return worker._serve, worker._signalled


def check_options(concurrency: int, drain_s: float | None, around: Sequence[Hook]) -> None:
    """Raise ConfigurationError for options of a worker that cannot be."""
    if concurrency < 1:
        raise ConfigurationError(f"concurrency is {concurrency}; accepted: 1 or more")
    if drain_s is not None and not drain_s >= 0:
        raise ConfigurationError(f"drain_s is {drain_s}; accepted: 0 or more, also math.inf")
    for hook in around:
        if not callable(hook):
            raise ConfigurationError(
                f"around has {hook!r}; accepted: functions of a job that return a context manager"
            )


def _tell_loop(loop: asyncio.AbstractEventLoop, tell: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: there is nobody to tell
        loop.call_soon_threadsafe(tell)


def _batch_of(jobs: list[LeasedJob]) -> list[LeasedJob]:
    """Take as many jobs as one request may have; the service rejects a batch that names a job twice."""
    return list({job.id: job for job in reversed(jobs[:_BATCH])}.values())
