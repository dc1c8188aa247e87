"""Turns of the loop, shared by the engines of one storage, and calls that are made one in each of them.

Making or removing a directory takes the loop a fraction of a millisecond to stage, and the disk two syncs to
commit. Whoever sends thousands of such calls would have a commit of seconds, which everybody's
acknowledgements wait for. So the calls beyond a few wait for the next commit, in the order they came, and
their clients with them: what a client says behind such a call is handled behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from .....clock import Clock
from ...ports.bus import Origin, Timers


class Taker(Protocol):
    """Somebody with long work."""

    def turn(self) -> None: ...


class Turns:
    """Calls those who have asked, one per turn of the loop, in the order they asked."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._waiting: deque[Taker] = deque()

    def ask(self, taker: Taker) -> None:
        """Call ``taker`` in a turn of its own."""
        self._waiting.append(taker)
        if len(self._waiting) == 1:
            self._arm()

    def _arm(self) -> None:
        self._timers.call_at(self._clock.monotonic_ns(), self._next)

    def _next(self) -> None:
        taker = self._waiting.popleft()
        if self._waiting:
            self._arm()
        taker.turn()


DIRECTORIES_PER_COMMIT: Final = 8


class PacedCalls:
    """For all engines of one storage; one call in each turn of the loop."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: deque[tuple[Callable[[], None], Origin]] = deque()
        self._asked = False
        self._staged = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def carry_out(self, call: Callable[[], None], origin: Origin) -> None:
        """Make a call: now, if few before it have been staged, else later."""
        if self._staged < DIRECTORIES_PER_COMMIT and not self._waiting:
            call()
            return
        origin.hold()
        self._waiting.append((call, origin))
        self._ask()

    def count(self) -> None:
        """A directory is to be made or removed by the next commit."""
        self._staged += 1

    def flush_begins(self) -> None:
        """What was staged is on its way: there is room for more."""
        self._staged = 0
        self._ask()

    def turn(self) -> None:
        """Make one of the calls that wait."""
        self._asked = False
        if not self._waiting or self._staged >= DIRECTORIES_PER_COMMIT:
            return
        call, origin = self._waiting.popleft()
        try:
            call()
        finally:
            self._ask()
            origin.release()

    def _ask(self) -> None:
        if self._waiting and not self._asked and self._staged < DIRECTORIES_PER_COMMIT:
            self._asked = True
            self._turns.ask(self)
