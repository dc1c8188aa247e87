"""Slices of time: connections with more to say than there is time for go on one after the other.

In one turn of the event loop a connection is served for a slice, and all of them for a few milliseconds. So
whoever says little never waits for those who say much. What a connection said beyond its slice is kept by
its session, and nothing more is read from it until that is handled. A connection that was put off without a
slice comes before those that have used one up.

Those go on in turn, but for clients that make subscriptions by the thousand: of them the oldest gets most of
the slices. In turn they would all be ready at the end; one after the other takes no longer, most are ready
earlier, and of a crowd that comes and goes few have all their subscriptions in memory at the same time.
"""

from __future__ import annotations

import bisect
import operator
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ...core.hub import Hub

SLICE_NS: Final = 2_500_000
TURN_NS: Final = 5_000_000  # for what is read in one turn of the loop, and for what was kept
SUBSCRIPTIONS_MANY: Final = 1_000  # who has so many and makes more is a subscriber by the thousand
OTHERS_EVERY: Final = 8  # every so many of the slices of such subscribers is not the oldest one's


class Guest(Protocol):
    """Who may have to wait for a slice."""

    is_waiting: bool
    """Kept by ``Slices``: it has asked for a slice and not got it yet."""

    @property
    def seniority(self) -> int:
        """The less, the older it is; every guest has its own."""

    @property
    def subscriptions(self) -> int:
        """How many it has now."""

    def use_slice(self) -> None:
        """Go on; ``Slices.begin`` was called. To be told again, ask again."""


class _Subscribers:
    """Those among the busy who subscribe by the thousand, the oldest first."""

    def __init__(self) -> None:
        self._waiting: list[Guest] = []
        self._taken = 0

    def add(self, guest: Guest) -> None:
        bisect.insort(self._waiting, guest, key=operator.attrgetter("seniority"))

    def take(self) -> Guest:
        """The oldest one mostly, or one of the others, each in turn: a slow one does not stop them."""
        self._taken += 1
        rounds, place = divmod(self._taken, OTHERS_EVERY)
        others = len(self._waiting) - 1
        return self._waiting.pop(0 if place or not others else 1 + rounds % others)

    def discard(self, guest: Guest) -> bool:
        """Whether it was among them."""
        if guest not in self._waiting:
            return False
        self._waiting.remove(guest)
        return True


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
        # Each None stands for one of the subscribers: whose slice it is is seen when it is given.
        self._busy: deque[Guest | None] = deque()
        self._subscribers = _Subscribers()
        self._served: tuple[Guest | None, int] = None, 0  # and how many subscriptions it had before

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
        if self._slice_ends_ns == 0:
            self._fresh.append(guest)
        elif self._subscribes(guest):
            self._subscribers.add(guest)
            self._busy.append(None)
        else:
            self._busy.append(guest)
        self._wake()

    def withdraw(self, guest: Guest) -> None:
        """Wait no longer."""
        if not guest.is_waiting:
            return
        guest.is_waiting = False
        if guest in self._fresh:
            self._fresh.remove(guest)
        else:
            self._busy.remove(None if self._subscribers.discard(guest) else guest)

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
            guest = (
                fresh.popleft() if number < first else busy.popleft() or self._subscribers.take()
            )
            guest.is_waiting = False
            self._served = guest, guest.subscriptions
            self._begin_slice(now_ns)
            guest.use_slice()
            now_ns = self._now_ns()
        self._served = None, 0
        self.next_turn()

    def next_turn(self) -> None:
        """What is read from here on is of the next turn."""
        self._turn_ends_ns = 0

    def is_used_up(self) -> bool:
        """Whether the slice that was begun is over."""
        return self._budget.look()

    def _subscribes(self, guest: Guest) -> bool:
        """Whether it has many subscriptions, and spent its slice on more."""
        served, before = self._served
        return guest is served and guest.subscriptions > max(before, SUBSCRIPTIONS_MANY)

    def _begin_slice(self, now_ns: int) -> None:
        self._slice_ends_ns = now_ns + SLICE_NS
        self._budget.begin()

    def _is_over(self) -> bool:
        return self._now_ns() >= self._slice_ends_ns
