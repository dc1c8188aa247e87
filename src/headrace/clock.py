"""Time is handed in: these two clocks are the only ones, and tests use the second."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """What a room that needs the time is given."""

    def now_ns(self) -> int:
        """Wall-clock time in nanoseconds since the Unix epoch."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back; for deadlines."""
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
        """Nanoseconds since it was made."""
        return self._monotonic_ns

    def advance(self, seconds: float) -> None:
        """Move forward by ``seconds``."""
        step_ns = round(seconds * 1e9)
        self._now_ns += step_ns
        self._monotonic_ns += step_ns
