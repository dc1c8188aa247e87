"""Threads of a simulated process: real ones, of which one runs at a time, and only while the loop stands by.

Whoever is resumed runs until the call ends or blocks; then the loop that resumed it goes on. So a seed plays
the same wherever it is played. Blocked for some virtual seconds, a thread is resumed by a timer of its
process, which is not called while that is frozen, and never once it is dead.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.handling.threads import Threads, as_plain

if TYPE_CHECKING:
    from sim.groups.loop import Process

__all__ = ["SimulatedThreads", "block"]

R = TypeVar("R")
BEGINS_WITHIN_S = 0.002

_here = threading.local()


class Buried(BaseException):
    """The process is dead, and its thread is to end."""


def block(seconds: float) -> None:
    """What the calling thread does for so long: nothing, and its loop goes on."""
    thread: _Thread = _here.thread
    thread.sleep(seconds)


class _Thread:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.is_buried = False
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._job: tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None
        self._job = None
        self._thread = threading.Thread(target=self._run, name=f"of {process.name}", daemon=True)
        self._thread.start()

    def begin(self, call: Callable[[], Any], ended: Callable[[Any, Any], None]) -> None:
        self._job = (call, ended)
        self.resume()

    def resume(self) -> None:
        """Called by the loop: run until the call ends or blocks."""
        self._go.release()
        self._stopped.acquire()

    def sleep(self, seconds: float) -> None:
        self.process.call_later(seconds, self.resume)
        self._stand_by()

    def _stand_by(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self.is_buried:
            raise Buried

    def bury(self) -> None:
        self.is_buried = True
        self._go.release()
        self._thread.join(10)

    def _run(self) -> None:
        _here.thread = self
        self._go.acquire()
        try:
            while not self.is_buried and self._job is not None:
                call, ended = self._job
                try:
                    result, error = call(), None
                except BaseException as raised:
                    result, error = None, raised
                if self.is_buried:
                    return
                ended(result, error)
                self._stand_by()
        except Buried:
            return


class SimulatedThreads(Threads):
    """As many as are wanted at once, run by the simulation; nothing of the real ones is begun."""

    is_here = property(lambda _self: False)

    def __init__(self, process: Process, rng: random.Random) -> None:
        self._process = process
        self._rng = rng
        self._idle: list[_Thread] = []

    def has(self, caller: object) -> bool:
        return False  # nobody calls on a thread

    async def run(self, call: Callable[[], R]) -> R:
        process = self._process
        waited: list[asyncio.Future[Any]] = [process.create_future()]
        over = False
        thread = self._idle.pop() if self._idle else self._new()

        def ended(result: Any, error: BaseException | None) -> None:
            process.call_soon(settle, result, error)

        def settle(result: Any, error: BaseException | None) -> None:
            nonlocal over
            over = True
            self._idle.append(thread)
            if waited[0].done():
                return
            if error is None:
                waited[0].set_result(result)
            else:
                waited[0].set_exception(as_plain(error))

        process.call_later(BEGINS_WITHIN_S * self._rng.random(), thread.begin, call, ended)
        try:
            found: R = await waited[0]
        except asyncio.CancelledError:
            if not over:
                waited[0] = process.create_future()
                await asyncio.wait(waited)
                _ = waited[0].exception()
            raise
        return found

    def _new(self) -> _Thread:
        thread = _Thread(self._process)
        self._process.threads.append(thread)
        return thread

    def close(self) -> None:
        """They end with the world."""
