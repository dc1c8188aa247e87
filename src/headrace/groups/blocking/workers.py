"""Threads on which the handlers of a membership run, while its work is decided on the loop's thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable

__all__ = ["Workers"]

_here = threading.local()


class _Job:
    """One call. Whoever claims it first decides: a worker makes it, or whoever waits gives it up."""

    def __init__(self, call: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self._claim = threading.Lock()

    def claim(self) -> bool:
        return self._claim.acquire(blocking=False)

    def make(self) -> None:
        """Make the call, and tell the loop how it ended."""
        error: BaseException | None = None
        try:
            self.call()
        except BaseException as raised:
            error = raised
        try:
            self.loop.call_soon_threadsafe(self._settle, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits

    def _settle(self, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            # A future takes no StopIteration, and an interrupt of one thread must not end the loop's.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            self.done.set_exception(error if plain else _wrapped(error))


class Workers:
    """Up to ``limit`` daemon threads; each begins when there is work for one more.

    Args:
        name: of the threads.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running = 0  # calls that are made or wait; counted on the loop's thread
        self._threads = 0

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is one of these."""
        return getattr(_here, "workers", None) is self

    async def run(self, call: Callable[[], object]) -> None:
        """Make a call on one of the threads. Raises what it raises.

        Cancelled, it still waits for a call that has begun: what it handles must not be given to another
        one meanwhile.
        """
        job = _Job(call, asyncio.get_running_loop())
        self._running += 1
        try:
            if self._threads < min(self._running, self._limit):
                self._begin_thread()
            self._jobs.put(job)
            try:
                await asyncio.shield(job.done)
            except asyncio.CancelledError:
                if not job.claim():
                    await asyncio.wait([job.done])
                    _ = job.done.exception()  # nobody is left to be told
                raise
        finally:
            self._running -= 1

    def close(self) -> None:
        """End the threads once they have nothing to do. May be called twice, from any thread."""
        for _ in range(self._limit):
            self._jobs.put(None)

    def _begin_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        _here.workers = self
        while (job := self._jobs.get()) is not None:
            if job.claim():
                job.make()
            del job  # an idle thread holds no message


def _wrapped(error: BaseException) -> RuntimeError:
    wrapped = RuntimeError(f"the handler raised {error!r}")
    wrapped.__cause__ = error
    return wrapped
