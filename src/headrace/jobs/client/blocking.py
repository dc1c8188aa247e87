"""The blocking client of the job service, made of the asyncio one; and the worker, whose ``run`` blocks.

A method runs the coroutine of the asyncio one on the thread that calls, where it sends by blocking HTTP
(``sending.BlockingSender``). Written by hand are the properties, of which type checkers would not infer the
types, and how clients and workers begin and end.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import ssl
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, overload

import httpx2

from ...blocking import Blocking, CallingThread, anywhere, blocking, iterating, wrapping
from ...errors import ConfigurationError
from . import aio
from .aio import AsyncJobsClient, client_over, on_loop
from .calls import Settings
from .running import Handler, Hook, is_free, stopped_by
from .sending import BlockingSender
from .worker import Worker, WorkerOptions, check_options, parts_of

__all__ = ["BlockingWorker", "JobsClient", "Queue", "worker"]


class Queue(Blocking):
    """The jobs of one pull consumer: claim them, finish them. Created by ``client.queue(…)``.

    Attributes:
        name: channel and consumer.
    """

    _inner: aio.Queue

    @property
    def name(self) -> str:
        """Channel and consumer."""
        return self._inner.name

    claim = blocking(aio.Queue.claim)
    complete = blocking(aio.Queue.complete)
    fail = blocking(aio.Queue.fail)
    release = blocking(aio.Queue.release)
    heartbeat = blocking(aio.Queue.heartbeat)


class JobsClient(Blocking):
    """A client of the service at ``url``. A context manager; without one, ``close`` it yourself.

    Every method raises :class:`~headrace.jobs.errors.JobsError` with the service's own code and sentence,
    or with status 0 and code ``unreachable`` if no answer came, ``client_closed`` after ``close``. One client
    may be used by several threads.

    Args:
        admin_token: required for definitions and operations if the service has one; or an API key, which
            stands for the tokens of channels, producers and consumers, too.
        timeout_s: seconds to wait for an answer, in addition to the time the service was asked to wait.
        connections: the maximum number of open connections.
        transport: sends the requests in place of sockets, for example in tests.
        tls: whose certificates to trust at an ``https`` URL; those of well-known authorities, if not given.
    """

    _inner: AsyncJobsClient

    def __init__(
        self,
        url: str,
        *,
        admin_token: str | None = None,
        timeout_s: float = 30.0,
        connections: int = 100,
        transport: httpx2.BaseTransport | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        settings = Settings(url, admin_token, timeout_s, connections, tls)
        super().__init__(CallingThread(), client_over(BlockingSender(settings, transport)))

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self._inner).__name__, type(self).__name__, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    close = blocking(AsyncJobsClient.close)

    # Definitions

    put_producer = blocking(AsyncJobsClient.put_producer)
    put_channel = blocking(AsyncJobsClient.put_channel)
    put_consumer = blocking(AsyncJobsClient.put_consumer)
    channel = blocking(AsyncJobsClient.channel)
    consumer = blocking(AsyncJobsClient.consumer)
    drain_channel = blocking(AsyncJobsClient.drain_channel)
    set_events_channel = blocking(AsyncJobsClient.set_events_channel)
    delete_channel = blocking(AsyncJobsClient.delete_channel)
    delete_producer = blocking(AsyncJobsClient.delete_producer)
    delete_consumer = blocking(AsyncJobsClient.delete_consumer)
    patch_consumer = blocking(AsyncJobsClient.patch_consumer)
    rotate_secret = blocking(AsyncJobsClient.rotate_secret)
    rotate_token = blocking(AsyncJobsClient.rotate_token)

    # Messages

    publish = blocking(AsyncJobsClient.publish)
    publish_batch = blocking(AsyncJobsClient.publish_batch)

    # Schedules

    put_schedule = blocking(AsyncJobsClient.put_schedule)
    schedule = blocking(AsyncJobsClient.schedule)
    schedules = blocking(AsyncJobsClient.schedules)
    delete_schedule = blocking(AsyncJobsClient.delete_schedule)

    # Pulling

    queue = wrapping(Queue, anywhere(AsyncJobsClient.queue))
    claim = blocking(AsyncJobsClient.claim)
    complete = blocking(AsyncJobsClient.complete)
    fail = blocking(AsyncJobsClient.fail)
    release = blocking(AsyncJobsClient.release)
    heartbeat = blocking(AsyncJobsClient.heartbeat)
    status = blocking(AsyncJobsClient.status)
    events = blocking(AsyncJobsClient.events)
    job = blocking(AsyncJobsClient.job)
    endpoint_calls = blocking(AsyncJobsClient.endpoint_calls)
    find_jobs = iterating(AsyncJobsClient.find_jobs)
    cancel_jobs = blocking(AsyncJobsClient.cancel_jobs)
    replay_jobs = blocking(AsyncJobsClient.replay_jobs)
    feeds = blocking(AsyncJobsClient.feeds)
    feed_again = blocking(AsyncJobsClient.feed_again)
    dead_jobs = iterating(AsyncJobsClient.dead_jobs)
    requeue_dead = blocking(AsyncJobsClient.requeue_dead)
    purge_dead = blocking(AsyncJobsClient.purge_dead)
    create_key = blocking(AsyncJobsClient.create_key)
    api_keys = iterating(AsyncJobsClient.api_keys)
    revoke_key = blocking(AsyncJobsClient.revoke_key)
    audit = iterating(AsyncJobsClient.audit)


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
        client, queue = on_loop(self._queue._inner)
        async with client:
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
def worker(queue: aio.Queue, **options: Unpack[WorkerOptions]) -> Callable[[Handler], Worker]: ...


@overload
def worker(
    queue: Queue, **options: Unpack[WorkerOptions]
) -> Callable[[Handler], BlockingWorker]: ...


def worker(
    queue: aio.Queue | Queue, **options: Unpack[WorkerOptions]
) -> Callable[[Handler], Worker] | Callable[[Handler], BlockingWorker]:
    """Create a worker from a handler::

        @worker(client.queue("orders", "mailer", channel_token=…, consumer_token=…), concurrency=20)
        async def mail(job): await send(job.payload)

        await mail.run()

    With a queue of ``JobsClient`` it is a ``BlockingWorker``, and ``mail.run()`` blocks.
    """

    def decorate(handler: Handler) -> Any:
        if isinstance(queue, Queue):
            return BlockingWorker(queue, handler, **options)
        return Worker(queue, handler, **options)

    return decorate
