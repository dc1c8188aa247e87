"""Turns of the loop, shared by the engines of one storage: each turn goes to one that asked."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from .....clock import Clock
from ...ports import Timers

__all__ = ["Turns"]


class Taker(Protocol):
    """Somebody with long work."""

    def turn(self) -> None: ...


class Turns:
    """Calls those who have asked, one per turn of the loop, in the order they asked."""

    def __init__(self) -> None:
        self._waiting: deque[Taker] = deque()

    def ask(self, taker: Taker, timers: Timers, clock: Clock) -> None:
        """Call ``taker`` in a turn of its own."""
        self._waiting.append(taker)
        if len(self._waiting) == 1:
            self._arm(timers, clock)

    def _arm(self, timers: Timers, clock: Clock) -> None:
        timers.call_at(clock.monotonic_ns(), lambda: self._next(timers, clock))

    def _next(self, timers: Timers, clock: Clock) -> None:
        taker = self._waiting.popleft()
        if self._waiting:
            self._arm(timers, clock)
        taker.turn()
