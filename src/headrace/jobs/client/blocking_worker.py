"""The worker of the blocking client: the other one, on a loop of its own, behind a ``run`` that blocks."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, Unpack, overload

from ...errors import ConfigurationError
from . import blocking
from .aio import AsyncJobsClient, Queue
from .running import Handler, Hook, is_free, stopped_by
from .worker import Worker, WorkerOptions, check_options, parts_of

__all__ = ["BlockingWorker", "worker"]


class BlockingWorker:
    """``Worker`` for a queue of ``JobsClient``: ``run`` blocks, and another thread stops it.

    Runs a handler over the jobs of a queue, up to ``concurrency`` at once, over its own connections.

    A handler that returns completes its job. One that raises :class:`Fail` says how the job failed; any
    other exception fails the job with its text. A plain function runs on a thread; a coroutine function
    runs on the loop behind ``run``. While handlers run, their leases are extended every third of
    ``lease_s``.

    Where a job was cancelled, or its lease was lost nevertheless, a handler on the loop is cancelled. A
    function sees it in ``job.is_cancelled``, and what it returns is not reported.

    ``around`` is entered where the handler runs, for plain functions on their threads, and sees what the
    handler raises.

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
        drain_s: float | None = None,
        around: Sequence[Hook] = (),
    ) -> None:
        check_options(concurrency, drain_s, around)
        self._queue = queue
        self._make = functools.partial(
            Worker,
            handler=handler,
            concurrency=concurrency,
            lease_s=lease_s,
            wait_s=wait_s,
            drain_s=drain_s,
            around=around,
        )
        # Guards the following: the worker's thread shares it with whoever stops it, such as a signal
        # handler.
        self._lock = threading.RLock()
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._queue!r}>"

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
        """Claim no more. ``run`` returns when the current jobs are finished, or after ``drain_s``: then those
        that still run are given back undone, which counts as no retry, and their handlers are cancelled.
        """
        with self._lock:
            self._is_stopped = True
            if self._loop is not None and self._worker is not None:
                self._loop.call_soon_threadsafe(self._worker.stop)

    def run(self) -> None:
        """Work until stopped: by ``stop``, or by SIGTERM or an interrupt (Ctrl-C), in the main thread of a
        program that does nothing else at it. A second one gives back at once what still runs.

        Raises ConfigurationError: it is running already, or an event loop runs in this thread.

        Raises JobsError: the service refuses to hand out jobs. If the consumer is pushed to from now on
        (412), the current jobs are finished first.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # The loop behind this takes interrupts itself, so whose they are is looked up before.
            taken = (signal.SIGINT,) if is_free(signal.SIGINT) else ()
            asyncio.run(self._work(taken))
        else:
            raise ConfigurationError(
                "run() blocks, and an event loop runs in this thread; use another thread, or a Worker "
                "with a queue of AsyncJobsClient"
            )

    async def _work(self, taken: Sequence[int]) -> None:
        settings = self._queue._client._settings
        async with AsyncJobsClient(
            settings.url,
            admin_token=settings.admin_token,
            timeout_s=settings.timeout_s,
            connections=settings.connections,
            tls=settings.tls,
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
                serve, signalled = parts_of(worker)
                with stopped_by((signal.SIGTERM,), signalled, taken=taken):
                    await serve()
            finally:
                with self._lock:
                    self._loop = None


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
