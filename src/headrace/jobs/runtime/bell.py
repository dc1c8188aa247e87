"""Wakes clients that wait for jobs of a consumer: one per ring, which wakes the next if there was work.

If every new job woke all of them, they would all ask the database for the same row.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType

__all__ = ["Bell", "Ear"]


class Ear:
    """One waiter. Enter it (``with``) before querying the database, so that no ring is missed."""

    def __init__(self, bell: Bell, consumer: int) -> None:
        self._bell = bell
        self._consumer = consumer
        self._rung = asyncio.Event()

    def __enter__(self) -> Ear:
        self._bell.add(self._consumer, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bell.remove(self._consumer, self)
        if self._rung.is_set():
            self._bell.ring([self._consumer])

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
        self._bell.to_the_end(self._consumer, self)


class Bell:
    """All waiters, by consumer, in the order in which they are woken."""

    def __init__(self) -> None:
        self._ears: dict[int, OrderedDict[Ear, None]] = {}

    def ear(self, consumer: int) -> Ear:
        """A new waiter for jobs of ``consumer``."""
        return Ear(self, consumer)

    def consumers(self) -> list[int]:
        """The consumers whose jobs somebody waits for."""
        return list(self._ears)

    def ring(self, consumers: Sequence[int]) -> None:
        """Wake one waiter for each of ``consumers``; if none is named, wake all waiters."""
        if not consumers:
            for ears in self._ears.values():
                for ear in ears:
                    ear.wake()
            return
        for consumer in consumers:
            for ear in self._ears.get(consumer, ()):
                if not ear.rung:
                    ear.wake()
                    break

    def add(self, consumer: int, ear: Ear) -> None:
        self._ears.setdefault(consumer, OrderedDict())[ear] = None

    def remove(self, consumer: int, ear: Ear) -> None:
        ears = self._ears[consumer]
        del ears[ear]
        if not ears:
            del self._ears[consumer]

    def to_the_end(self, consumer: int, ear: Ear) -> None:
        self._ears[consumer].move_to_end(ear)
