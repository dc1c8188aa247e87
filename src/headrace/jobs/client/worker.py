"""A worker: claims as many jobs as it has room for, extends their leases, finishes them, stops gracefully."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypedDict, Unpack, overload

from ...errors import ConfigurationError
from .. import limits
from ..errors import JobsError
from . import blocking, tracing
from .aio import AsyncJobsClient, Queue
from .calls import LeasedJob

__all__ = ["BlockingWorker", "Fail", "Worker", "worker"]

Handler = Callable[[LeasedJob], Awaitable[Any]] | Callable[[LeasedJob], Any]

_LOG: Final = logging.getLogger("headrace.jobs.worker")
_AGAIN_S: Final = 1.0
_BATCH: Final = 500
_PUSHED: Final = 412  # the consumer does not pull any more


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
    """How many jobs are worked on at once; 10 by default."""

    lease_s: float
    """Seconds for which a job is ours, extended while it is worked on; 30 by default."""

    wait_s: float
    """Seconds that one request for jobs may wait for them; 20 by default."""


class Worker:
    """Runs a handler over the jobs of a queue, up to ``concurrency`` at once.

    A handler that returns completes its job. One that raises :class:`Fail` says how the job failed; any
    other exception fails the job with its text. A plain function runs on a thread; an awaitable that it
    returns is awaited. While handlers run, their leases are extended every third of ``lease_s``. A handler
    whose lease is lost nevertheless is cancelled, because another worker has the job.

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
    ) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency is {concurrency}; accepted: 1 or more")
        self._queue = queue
        self._handler = handler
        self._is_async = _is_async(handler)
        self._threads: ThreadPoolExecutor | None = None  # for plain functions, while it runs
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._wait_s = wait_s
        # By id and lease: a job whose lease was lost may be claimed again while its handler still runs.
        self._running: dict[tuple[str, str], tuple[LeasedJob, asyncio.Task[None]]] = {}
        self._done: list[LeasedJob] = []
        self._stir = asyncio.Event()
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self.completed = 0
        self.failed = 0
        self.lost = 0
        self.cancelled = 0

    def stop(self) -> None:
        """Claim no more. ``run`` returns when the current jobs are finished."""
        self._stopping.set()
        self._stir.set()

    async def run(self) -> None:
        """Work until stopped. Cancelling ends at once; others get the jobs when their leases expire.

        Raises JobsError: the service refuses to hand out jobs. If the consumer is pushed to from now on
        (412), the current jobs are finished first.
        """
        pushed: JobsError | None = None
        # A thread starts when it is needed. The loop's own threads are few, and other code needs them.
        self._threads = ThreadPoolExecutor(self._concurrency, "job")
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
            while self._running or self._done:
                await self._until_stirred(background)
            if pushed is not None:
                raise pushed
        finally:
            tasks = [*background, *(task for _, task in self._running.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._threads.shutdown(wait=False)

    async def _until_stirred(self, background: list[asyncio.Task[None]]) -> None:
        """Wait until a handler ends, a job was completed, or a part of the worker failed."""
        for task in background:
            if task.done():
                task.result()
        self._stir.clear()
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
                return []
            return claim.result()
        except JobsError as error:
            if error.status in {400, 401, 403, 404, 412}:
                raise
            _LOG.warning("%s: no jobs for now: %s", self._queue.name, error)
            await asyncio.sleep(_AGAIN_S)
            return []
        finally:
            for task in (claim, stop):
                task.cancel()
            await asyncio.gather(claim, stop, return_exceptions=True)

    def _start(self, job: LeasedJob) -> None:
        task = asyncio.create_task(self._work(job), name=f"job-{job.id}")
        self._running[job.id, job.lease] = (job, task)

    async def _work(self, job: LeasedJob) -> None:
        try:
            with tracing.processing(self._queue.name, job.id, job.attempt, job.headers):
                await self._handle(job)
        except asyncio.CancelledError:
            raise
        except Fail as failure:
            await self._report(job, failure)
        except Exception as error:  # a handler may raise anything; it must not end the worker
            _LOG.warning("%s: job %s failed", self._queue.name, job.id, exc_info=error)
            await self._report(job, Fail(_reason(error)))
        else:
            self._done.append(job)
            self._ready.set()
        finally:
            self._running.pop((job.id, job.lease), None)
            self._stir.set()

    async def _handle(self, job: LeasedJob) -> None:
        """Run the handler to its end, whatever kind of callable it is."""
        if self._is_async:
            result = self._handler(job)
        else:
            call = functools.partial(contextvars.copy_context().run, self._handler, job)
            result = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        if inspect.isawaitable(
            result
        ):  # also the result of a plain callable: the work is still to be done
            await result
        elif inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise TypeError("the handler made a generator, which nobody runs; it must not yield")

    async def _report(self, job: LeasedJob, failure: Fail) -> None:
        self.failed += 1
        while True:
            try:
                await self._queue.fail(
                    [job], failure.reason, retry_in_s=failure.retry_in_s, dead=failure.dead
                )
            except JobsError as error:
                _LOG.warning("%s: job %s: %s", self._queue.name, job.id, error)
                if 0 < error.status < 500:
                    return
                await asyncio.sleep(_AGAIN_S)
            else:
                return

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
                _LOG.warning("%s: completing waits: %s", self._queue.name, error)
                await asyncio.sleep(_AGAIN_S)
                continue
            self._done = [job for job in self._done if job not in jobs]
            self.completed += sum(result.status == 200 for result in results)
            self.lost += sum(result.status != 200 for result in results)
            self._stir.set()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            held = [job for job, _ in self._running.values()] + self._done
            while held:
                jobs = _batch_of(held)
                held = [job for job in held if job not in jobs]
                await self._extend(jobs)

    async def _extend(self, jobs: list[LeasedJob]) -> None:
        try:
            results = await self._queue.heartbeat(jobs, self._lease_s)
        except JobsError as error:
            _LOG.warning("%s: the heartbeat did not arrive: %s", self._queue.name, error)
            return
        for job, result in zip(jobs, results, strict=True):
            running = self._running.get((job.id, job.lease))
            if result.status != 200 and running is not None:
                if result.code == "cancelled":
                    self.cancelled += 1
                    # Before its handler ends: a worker that stops then would leave it to the lease.
                    await self._give_back(job)
                else:
                    self.lost += 1
                running[1].cancel()

    async def _give_back(self, job: LeasedJob) -> None:
        """End the claim of a job that was cancelled; otherwise its lease does."""
        try:
            await self._queue.release([job])
        except JobsError as error:
            _LOG.warning("%s: job %s: %s", self._queue.name, job.id, error)


class BlockingWorker:
    """``Worker`` for a queue of ``JobsClient``: ``run`` blocks, and another thread stops it.

    Runs a handler over the jobs of a queue, up to ``concurrency`` at once, over its own connections.

    A handler that returns completes its job. One that raises :class:`Fail` says how the job failed; any
    other exception fails the job with its text. A plain function runs on a thread; a coroutine function
    runs on the loop behind ``run``. While handlers run, their leases are extended every third of
    ``lease_s``. A handler whose lease is lost nevertheless is cancelled, because another worker has the
    job.

    Attributes:
        completed: jobs that were completed.
        failed: jobs that the handler gave up, or whose handler raised.
        lost: jobs that another worker has taken over.
        cancelled: jobs that were cancelled while their handlers ran.
    """

    def __init__(
        self,
        queue: blocking.Queue,
        handler: Handler,
        *,
        concurrency: int = 10,
        lease_s: float = 30.0,
        wait_s: float = 20.0,
    ) -> None:
        self._queue = queue
        self._make = functools.partial(
            Worker, handler=handler, concurrency=concurrency, lease_s=lease_s, wait_s=wait_s
        )
        # Guards the following: the worker's thread shares it with whoever stops it, such as a signal
        # handler.
        self._lock = threading.RLock()
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._is_stopped = False

    @property
    def completed(self) -> int:
        """Jobs that were completed."""
        return self._worker.completed if self._worker is not None else 0

    @property
    def failed(self) -> int:
        """Jobs that the handler gave up, or whose handler raised."""
        return self._worker.failed if self._worker is not None else 0

    @property
    def lost(self) -> int:
        """Jobs that another worker has taken over."""
        return self._worker.lost if self._worker is not None else 0

    @property
    def cancelled(self) -> int:
        """Jobs that were cancelled while their handlers ran."""
        return self._worker.cancelled if self._worker is not None else 0

    def stop(self) -> None:
        """Claim no more. ``run`` returns when the current jobs are finished."""
        with self._lock:
            self._is_stopped = True
            if self._loop is not None and self._worker is not None:
                self._loop.call_soon_threadsafe(self._worker.stop)

    def run(self) -> None:
        """Work until stopped. An interrupt ends at once; others get the jobs when their leases
        expire.

        Raises ConfigurationError: it is running already, or an event loop runs in this thread.

        Raises JobsError: the service refuses to hand out jobs. If the consumer is pushed to from now on
        (412), the current jobs are finished first.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self._work())
        else:
            raise ConfigurationError(
                "run() blocks, and an event loop runs in this thread; use another thread, or a Worker "
                "with a queue of AsyncJobsClient"
            )

    async def _work(self) -> None:
        settings = self._queue._client._settings
        async with AsyncJobsClient(
            settings.url,
            admin_token=settings.admin_token,
            timeout_s=settings.timeout_s,
            connections=settings.connections,
        ) as client:
            queue = Queue(client, self._queue._channel, self._queue._consumer, self._queue._tokens)
            with self._lock:
                if self._loop is not None:
                    raise ConfigurationError("the worker runs already")
                worker = self._worker = self._make(queue)
                self._loop = asyncio.get_running_loop()
                if self._is_stopped:
                    worker.stop()
            try:
                await worker.run()
            finally:
                with self._lock:
                    self._loop = None


def _reason(error: Exception) -> str:
    """What is reported of an exception, whose text may raise one itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as other:
        return f"{type(error).__name__}, whose text cannot be made: {type(other).__name__}"


def _is_async(handler: Handler) -> bool:
    """Whether calling ``handler`` returns a coroutine without doing any work yet, as far as can be told."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - its kind is asked, not whether it is there
    )


def _batch_of(jobs: list[LeasedJob]) -> list[LeasedJob]:
    """As many jobs as one request may have; the service rejects a batch that names a job twice."""
    return list({job.id: job for job in reversed(jobs[:_BATCH])}.values())


@overload
def worker(queue: Queue, **options: Unpack[WorkerOptions]) -> Callable[[Handler], Worker]: ...


@overload
def worker(
    queue: blocking.Queue, **options: Unpack[WorkerOptions]
) -> Callable[[Handler], BlockingWorker]: ...


def worker(
    queue: Queue | blocking.Queue, **options: Unpack[WorkerOptions]
) -> Callable[[Handler], Worker] | Callable[[Handler], BlockingWorker]:
    """Create a worker from a handler::

        @worker(client.queue("orders", "mailer", channel_token=…, consumer_token=…), concurrency=20)
        async def mail(job): await send(job.payload)

        await mail.run()

    With a queue of ``JobsClient`` it is a ``BlockingWorker``, and ``mail.run()`` blocks.
    """

    def decorate(handler: Handler) -> Any:
        if isinstance(queue, blocking.Queue):
            return BlockingWorker(queue, handler, **options)
        return Worker(queue, handler, **options)

    return decorate
