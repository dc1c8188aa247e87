"""Calls that make or remove a directory on the disk: only a few to a commit.

Staging one takes the loop a fraction of a millisecond, committing it takes the disk two syncs. Whoever sends
thousands would have a commit of seconds, which everybody's acknowledgements wait for. So the calls beyond a
few wait for the next commit, in the order they came, and their clients with them: what a client says behind
such a call is handled behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from .....clock import Clock
from ...ports import Origin, Timers
from .turns import Turns

__all__ = ["DIRECTORIES_PER_COMMIT", "PacedCalls"]

DIRECTORIES_PER_COMMIT: Final = 8


class _Waiting(NamedTuple):
    call: Callable[[], None]
    origin: Origin
    timers: Timers
    clock: Clock


class PacedCalls:
    """For all engines of one storage; one call in each turn of the loop."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: deque[_Waiting] = deque()
        self._asked = False
        self._staged = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def carry_out(
        self, call: Callable[[], None], origin: Origin, timers: Timers, clock: Clock
    ) -> None:
        """Make a call: now, if few before it have been staged, else later."""
        if self._staged < DIRECTORIES_PER_COMMIT and not self._waiting:
            call()
            return
        origin.hold()
        self._waiting.append(_Waiting(call, origin, timers, clock))
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
        waiting = self._waiting.popleft()
        try:
            waiting.call()
        finally:
            self._ask()
            waiting.origin.release()

    def _ask(self) -> None:
        if self._waiting and not self._asked and self._staged < DIRECTORIES_PER_COMMIT:
            self._asked = True
            first = self._waiting[0]
            self._turns.ask(self, first.timers, first.clock)
