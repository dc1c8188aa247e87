"""Threads for handlers that block. They keep no process from ending, and a handler may raise anything."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Ended", "Threads"]


class Ended(NamedTuple):
    """How a call ended: with a result, or with what it raised, which nobody raises again by accident."""

    result: Any = None
    error: BaseException | None = None


class _Work(NamedTuple):
    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[Ended]


class Threads:
    """As many as run at once: a thread is made when no other is idle, and waits for more to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0

    async def run(self, call: Callable[[], Any]) -> Ended:
        """Call it on a thread. Whoever is cancelled meanwhile leaves the thread to itself."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"job-{self._count}", daemon=True).start()
        self._waiting.put(_Work(call, loop, ended))
        return await ended

    def close(self) -> None:
        """End the threads, each as soon as it has nothing to do."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                outcome = Ended(work.call())
            except BaseException as error:  # SystemExit and its like end a job, not a worker
                outcome = Ended(error=error)
            with self._lock:
                self._idle += 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                work.loop.call_soon_threadsafe(_tell, work.ended, outcome)
            del work, outcome  # what they refer to ends with the job


def _tell(ended: asyncio.Future[Ended], outcome: Ended) -> None:
    if not ended.done():
        ended.set_result(outcome)
