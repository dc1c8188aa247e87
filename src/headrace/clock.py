"""Clocks. Code that needs the time is handed one of these; tests use ``ManualClock``."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The time, as it is handed to code that needs it."""

    def now_ns(self) -> int:
        """Wall-clock time in nanoseconds since the Unix epoch."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go backwards; for deadlines."""
        ...


class SystemClock:
    """The machine's clocks."""

    now_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)


class ManualClock:
    """A clock that moves only when told to. Both readings advance together."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now_ns = now_ns
        self._monotonic_ns = 0

    def now_ns(self) -> int:
        """Wall-clock time in nanoseconds since the Unix epoch."""
        return self._now_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds since this clock was created."""
        return self._monotonic_ns

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        step_ns = round(seconds * 1e9)
        self._now_ns += step_ns
        self._monotonic_ns += step_ns
