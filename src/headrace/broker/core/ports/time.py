"""The clock's side of what the core is handed: randomness, and where it asks to be called later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Randomness", "Timer", "Timers"]


class Randomness(Protocol):
    """A source of identifiers; ``random.Random`` and ``random.SystemRandom`` match."""

    def getrandbits(self, k: int, /) -> int: ...


class Timer(Protocol):
    """A callback that was asked for; cancelling one that has run or was cancelled does nothing."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Where the core asks to be called later; the hub runs what is due in order of deadline."""

    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> Timer:
        """Call once at or after this reading of ``Clock.monotonic_ns``."""
