"""Threads on which plain handlers run, while what they do next is decided on the loop's thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from typing import Any, Generic, NamedTuple, TypeVar

from .callbacks import RaisedError, as_exception, awaitable_of

R = TypeVar("R")

_here = threading.local()


class _Job:
    """One call. Whoever claims it first decides: a thread makes it, or whoever waits gives it up."""

    def __init__(self, call: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.loop = loop
        self.done: asyncio.Future[Any] = loop.create_future()
        self.is_over = False
        self._claim = threading.Lock()

    def claim(self) -> bool:
        return self._claim.acquire(blocking=False)

    def make(self) -> None:
        """Make the call, and tell the loop how it ended."""
        result: object = None
        error: BaseException | None = None
        try:
            result = self.call()
        except BaseException as raised:
            error = raised
        try:
            self.loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits

    def _settle(self, result: object, error: BaseException | None) -> None:
        self.is_over = True
        if self.done.done():
            return
        if error is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(as_plain(error))


class Threads:
    """Up to ``limit`` daemon threads; each begins when there is work for one more.

    Args:
        name: of the threads.
        waits: whether whoever is cancelled waits for a call that has begun. False leaves it to itself:
            others have what it handles, or will.
    """

    def __init__(self, limit: int, name: str, *, waits: bool = True) -> None:
        self._limit = limit
        self._name = name
        self._waits = waits
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running = 0  # calls that are made or wait; counted on the loop's thread
        self._begun = 0
        self._numbers: set[object] = set()  # by which threads are known

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one of these."""
        return getattr(_here, "threads", None) is self

    def has(self, caller: object) -> bool:
        """Whether ``caller`` is the number of one of these."""
        return caller in self._numbers

    async def run(self, call: Callable[[], R]) -> R:
        """Make a call on one of the threads; returns what it returns, raises what it raises.

        Cancelled, it still waits for a call that has begun, if ``waits``: what it handles must not be
        given to another one meanwhile.
        """
        job = _Job(call, asyncio.get_running_loop())
        self._running += 1
        try:
            if self._begun < min(self._running, self._limit):
                self._begin_thread()
            self._jobs.put(job)
            try:
                result: R = await job.done
            except asyncio.CancelledError:
                if not job.claim() and self._waits and not job.is_over:
                    job.done = job.loop.create_future()
                    await asyncio.wait([job.done])
                    _ = job.done.exception()  # nobody is left to be told
                raise
            return result
        finally:
            self._running -= 1

    def close(self) -> None:
        """End the threads once they have nothing to do. May be called twice, from any thread."""
        for _ in range(self._limit):
            self._jobs.put(None)

    def _begin_thread(self) -> None:
        self._begun += 1
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        _here.threads = self
        self._numbers.add(threading.get_ident())
        while (job := self._jobs.get()) is not None:
            if job.claim():
                job.make()
            del job  # an idle thread holds no message


def as_plain(error: BaseException) -> Exception:
    """What was raised on a thread, as what a future takes: no StopIteration, and an interrupt of one thread
    must not end another."""
    if isinstance(error, StopIteration):
        wrapped = RaisedError(f"the handler raised {error!r}")
        wrapped.__cause__ = error
        return wrapped
    return as_exception(error)


M = TypeVar("M")


class Stopped(NamedTuple, Generic[M]):
    """What a thread leaves to the loop: a call that raised, or returned what is to be awaited."""

    message: M
    error: Exception | None
    awaitable: Awaitable[object] | None


class Turn(Generic[M]):
    """What a thread does by itself: calls for one message after the other, until one of them needs the loop.

    Args:
        context: of which each call gets a copy.
        lane: what stands for the thread on the loop meanwhile.

    Attributes:
        stopped: what needs the loop; the messages after it are still to be handled.
        is_over: whether there are none.
    """

    __slots__ = ("_context", "_handler", "_lane", "_messages", "is_over", "stopped")

    def __init__(
        self,
        handler: Callable[[M], object],
        context: Context,
        lane: asyncio.Task[Any] | None,
    ) -> None:
        self._messages: Iterator[M] = iter(())
        self._handler = handler
        self._context = context
        self._lane = lane
        self.stopped: Stopped[M] | None = None
        self.is_over = True

    def begin(self, messages: Iterator[M]) -> None:
        """These are next; they are iterated on the thread."""
        self._messages = messages
        self.stopped = None
        self.is_over = False

    def __call__(self) -> None:
        """Go on."""
        self.stopped = None
        _here.lane = self._lane
        copied, handler = self._context.copy, self._handler
        for message in self._messages:
            try:
                result: Any = copied().run(handler, message)
                if result is not None:
                    result = awaitable_of(result)
            except BaseException as error:
                self.stopped = Stopped(message, as_exception(error), None)
                return
            if result is not None:
                self.stopped = Stopped(message, None, result)
                return
        self.is_over = True


def call_again(
    message: M,
    handler: Callable[[M], object],
    context: Context,
    lane: asyncio.Task[Any] | None,
    check: Callable[[M], object] | None,
) -> object:
    """Make one call more, on whichever thread: see ``Turn``.

    Args:
        check: is called just before; what it raises is raised.
    """
    _here.lane = lane
    if check is not None:
        check(message)
    return context.run(handler, message)


def lane_here() -> asyncio.Task[Any] | None:
    """What stands for this thread on the loop, if it is one that calls handlers."""
    return getattr(_here, "lane", None)
