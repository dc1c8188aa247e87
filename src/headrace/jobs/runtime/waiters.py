"""Wakes clients that wait for jobs of a consumer: one per ring, which wakes the next if there was work.

If every new job woke all of them, they would all ask the database for the same row.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType

__all__ = ["JobWaiter", "JobWaiters"]


class JobWaiter:
    """One waiter. Enter it (``with``) before querying the database, so that no ring is missed."""

    def __init__(self, waiters: JobWaiters, consumer: int) -> None:
        self._waiters = waiters
        self._consumer = consumer
        self._rung = asyncio.Event()

    def __enter__(self) -> JobWaiter:
        self._waiters.add(self._consumer, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiters.remove(self._consumer, self)
        if self._rung.is_set():
            self._waiters.ring([self._consumer])

    @property
    def rung(self) -> bool:
        return self._rung.is_set()

    def wake(self) -> None:
        self._rung.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when woken, or after ``timeout_s`` if it is given. Safe to cancel."""
        try:
            async with asyncio.timeout(None if timeout_s is None else max(0.0, timeout_s)):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
        self._waiters.to_the_end(self._consumer, self)


class JobWaiters:
    """All waiters, by consumer, in the order in which they are woken."""

    def __init__(self) -> None:
        self._by_consumer: dict[int, OrderedDict[JobWaiter, None]] = {}

    def waiter(self, consumer: int) -> JobWaiter:
        """A new waiter for jobs of ``consumer``."""
        return JobWaiter(self, consumer)

    def consumers(self) -> list[int]:
        """The consumers whose jobs somebody waits for."""
        return list(self._by_consumer)

    def ring(self, consumers: Sequence[int]) -> None:
        """Wake one waiter for each of ``consumers``; if none is named, wake all waiters."""
        if not consumers:
            for waiting in self._by_consumer.values():
                for waiter in waiting:
                    waiter.wake()
            return
        for consumer in consumers:
            for waiter in self._by_consumer.get(consumer, ()):
                if not waiter.rung:
                    waiter.wake()
                    break

    def add(self, consumer: int, waiter: JobWaiter) -> None:
        self._by_consumer.setdefault(consumer, OrderedDict())[waiter] = None

    def remove(self, consumer: int, waiter: JobWaiter) -> None:
        waiting = self._by_consumer[consumer]
        del waiting[waiter]
        if not waiting:
            del self._by_consumer[consumer]

    def to_the_end(self, consumer: int, waiter: JobWaiter) -> None:
        self._by_consumer[consumer].move_to_end(waiter)
