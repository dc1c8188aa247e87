"""Clocks. Code that needs the time is handed one of these; tests use ``ManualClock``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Protocol

__all__ = ["Clock", "Jump", "ManualClock", "SteadyClock", "SystemClock"]

JUMP_NS: Final = 1_000_000_000
"""The time of day may go so much otherwise than the steady time before that is called a jump."""
BELIEVED_AFTER_NS: Final = 60_000_000_000
"""So long a jump has to last before times follow it."""


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


class Jump(NamedTuple):
    """The time of day was set, or came back to what it was.

    Attributes:
        by_ns: by how much; less than 0: back.
        what: ``seen`` when it is noticed, ``followed`` when it is believed, ``over`` when it was gone before.
    """

    by_ns: int
    what: Literal["seen", "followed", "over"]


class SteadyClock:
    """Another clock, whose time of day does not jump at once: a jump is followed when it has lasted.

    What goes by the time of day (ages, schedules, pauses) is spared a clock that is wrong for a moment. Jumps
    of less than a second are followed at once. Nothing is measured unless somebody asks for the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._wall_ns = clock.now_ns
        self.monotonic_ns: Callable[[], int] = clock.monotonic_ns
        self._offset_ns = clock.now_ns() - clock.monotonic_ns()
        self._last_ns = self._until_ns = 0  # from the last look on, times in this second need none
        self._held_ns = 0  # the jump that is not followed yet
        self._since_ns = 0
        self.on_jump: Callable[[Jump], object] = lambda jump: None
        """Called with each jump; by default nobody is told."""
        self.jumps = 0
        """How many jumps were followed."""

    @property
    def held_ns(self) -> int:
        """By how much the time of day differs now from what ``now_ns`` gives: a jump not believed yet."""
        self.now_ns()
        return self._held_ns

    def now_ns(self) -> int:
        """Wall-clock time in nanoseconds since the Unix epoch, without jumps that do not last."""
        now_ns = self._wall_ns()
        if self._last_ns <= now_ns < self._until_ns:
            self._last_ns = now_ns
            return now_ns
        return self._looked(now_ns)

    def _looked(self, now_ns: int) -> int:
        """The time, held against the steady clock: once a second is enough, unless it goes back."""
        steady_ns = self.monotonic_ns()
        offset_ns = now_ns - steady_ns
        if -JUMP_NS < offset_ns - self._offset_ns < JUMP_NS:
            self._offset_ns = offset_ns
            self._last_ns, self._until_ns = now_ns, now_ns + JUMP_NS
            if self._held_ns:
                self._end("over")
            return now_ns
        return self._beside(offset_ns - self._offset_ns, steady_ns)

    def _beside(self, by_ns: int, steady_ns: int) -> int:
        """The time while the clock says otherwise, by so much."""
        self._until_ns = 0
        if not self._held_ns or abs(by_ns - self._held_ns) >= JUMP_NS:
            self._held_ns, self._since_ns = by_ns, steady_ns
            self.on_jump(Jump(by_ns, "seen"))
        elif steady_ns - self._since_ns >= BELIEVED_AFTER_NS:
            self._offset_ns += by_ns
            self.jumps += 1
            self._end("followed")
        return self._offset_ns + steady_ns

    def _end(self, what: Literal["followed", "over"]) -> None:
        by_ns, self._held_ns = self._held_ns, 0
        self.on_jump(Jump(by_ns, what))


class ManualClock:
    """A clock that moves only when told to. Both readings advance together, but for ``jump``.

    It may be moved by any thread, but by one at a time.
    """

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self._readings = (now_ns, 0)
        self._followers: list[Callable[[], object]] = []

    def now_ns(self) -> int:
        """Wall-clock time in nanoseconds since the Unix epoch."""
        return self._readings[0]

    def monotonic_ns(self) -> int:
        """Nanoseconds since this clock was created."""
        return self._readings[1]

    def readings(self) -> tuple[int, int]:
        """``now_ns`` and ``monotonic_ns`` of the same moment, also while another thread moves the clock."""
        return self._readings

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        step_ns = round(seconds * 1e9)
        now_ns, monotonic_ns = self._readings
        self._move(now_ns + step_ns, monotonic_ns + step_ns)

    def jump(self, seconds: float) -> None:
        """Set the wall clock ahead by ``seconds``, or back."""
        now_ns, monotonic_ns = self._readings
        self._move(now_ns + round(seconds * 1e9), monotonic_ns)

    def follow(self, moved: Callable[[], object]) -> None:
        """Have ``moved`` called whenever the clock was moved, by whoever moved it."""
        self._followers.append(moved)

    def unfollow(self, moved: Callable[[], object]) -> None:
        """Call ``moved`` no more. May be called again."""
        if moved in self._followers:
            self._followers.remove(moved)

    def _move(self, now_ns: int, monotonic_ns: int) -> None:
        self._readings = (now_ns, monotonic_ns)
        for moved in tuple(self._followers):
            moved()
