"""Slices of time: connections with more to say than there is time for go on one after the other.

In one turn of the event loop a connection is served for a slice, and all of them for a few milliseconds. So
whoever says little never waits for those who say much. What a connection said beyond its slice is kept by
its session, and nothing more is read from it until that is handled. A connection that was put off without a
slice comes before those that have used one up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ...core.hub import Hub

SLICE_NS: Final = 2_500_000
TURN_NS: Final = 5_000_000  # for what is read in one turn of the loop, and for what was kept


class Guest(Protocol):
    """Who may have to wait for a slice."""

    is_waiting: bool
    """Kept by ``Slices``: it has asked for a slice and not got it yet."""

    def use_slice(self) -> None:
        """Go on; ``Slices.begin`` was called. To be told again, ask again."""


class Slices:
    """One per hub; ``hub.budget`` is spent when the slice is over."""

    def __init__(self, hub: Hub, wake: Callable[[], None]) -> None:
        """``wake`` is called when somebody waits for a slice."""
        self._now_ns = hub.clock.monotonic_ns
        self._budget = hub.budget
        self._budget.is_over = self._is_over
        self._wake = wake
        self._slice_ends_ns = 0
        self._turn_ends_ns = 0  # 0: nobody was served yet
        self._fresh: deque[Guest] = deque()
        self._busy: deque[Guest] = deque()

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for a slice."""
        return bool(self._fresh or self._busy)

    def begin(self) -> bool:
        """Begin a slice for somebody who has just said something; False: this turn is used up."""
        now_ns = self._now_ns()
        if not self._turn_ends_ns:
            self._turn_ends_ns = now_ns + TURN_NS
        elif now_ns >= self._turn_ends_ns:
            self._slice_ends_ns = 0
            self._budget.spent = True
            return False
        self._begin_slice(now_ns)
        return True

    def ask(self, guest: Guest) -> None:
        """Let ``guest`` go on in a later turn; it has just been served, or ``begin`` refused."""
        if guest.is_waiting:
            return
        guest.is_waiting = True
        had_a_slice = self._slice_ends_ns > 0
        (self._busy if had_a_slice else self._fresh).append(guest)
        self._wake()

    def withdraw(self, guest: Guest) -> None:
        """Wait no longer."""
        if guest.is_waiting:
            guest.is_waiting = False
            for queue in (self._fresh, self._busy):
                if guest in queue:
                    queue.remove(guest)

    def serve_waiting(self) -> None:
        """A new turn of the loop: some of those who wait go on."""
        now_ns = self._now_ns()
        ends_ns = now_ns + TURN_NS
        fresh, busy = self._fresh, self._busy
        first = len(fresh)
        # One of the busy always, or those who say much would never come to it.
        for number in range(first + len(busy)):
            if now_ns >= ends_ns and number != first:
                if number > first:
                    break
                continue
            guest = (fresh if number < first else busy).popleft()
            guest.is_waiting = False
            self._begin_slice(now_ns)
            guest.use_slice()
            now_ns = self._now_ns()
        self.next_turn()

    def next_turn(self) -> None:
        """What is read from here on is of the next turn."""
        self._turn_ends_ns = 0

    def is_used_up(self) -> bool:
        """Whether the slice that was begun is over."""
        return self._budget.look()

    def _begin_slice(self, now_ns: int) -> None:
        self._slice_ends_ns = now_ns + SLICE_NS
        self._budget.begin()

    def _is_over(self) -> bool:
        return self._now_ns() >= self._slice_ends_ns
