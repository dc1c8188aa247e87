"""The heartbeat between an event loop and the hub: ticks, timers, and reading under pressure.

A tick follows every round of input: JetStream finishes its batch, then each touched connection is
written once, then those go on who have said more than there was time for (``Slices``). The loop arms at
most one timer, for the hub's next deadline.

``Pressure`` says who waits while the disk is behind: those who keep it busy, so that whoever stores little
does not. What is staged is committed in the order in which it came. So a message waits for all bytes
before it, and whoever fills that queue decides how long everybody waits. While there is more in it than
the disk takes in a moment, a connection stages its share, and is read again when the queue is short.

``Slices`` of time are what connections with more to say than there is time for get one after the other. In
one turn of the event loop a connection is served for a slice, and all of them for a few milliseconds. So
whoever says little never waits for those who say much. What a connection said beyond its slice is kept by
its session, and nothing more is read from it until that is handled. A connection that was put off without
a slice comes before those that have used one up.

Those go on in turn, but for clients that make subscriptions by the thousand: of them the oldest gets most
of the slices. In turn they would all be ready at the end; one after the other takes no longer, most are
ready earlier, and of a crowd that comes and goes few have all their subscriptions in memory at the same
time.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import operator
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from ....limits import INGEST_BEHIND_BYTES, INGEST_SHARE_BYTES
from ...core.hub import Hub
from ...core.net.session import Session
from .connection import Connection

if TYPE_CHECKING:
    from .inprocess import InProcessConnection


_SHORT_BYTES: Final = INGEST_BEHIND_BYTES * 3 // 4  # the disk has work until those held say more
SLICE_NS: Final = 2_500_000
TURN_NS: Final = 5_000_000  # for what is read in one turn of the loop, and for what was kept
SUBSCRIPTIONS_MANY: Final = 1_000  # who has so many and makes more is a subscriber by the thousand
OTHERS_EVERY: Final = 8  # every so many of the slices of such subscribers is not the oldest one's
CAUGHT_UP_ROUNDS = 1000  # what asks for "now" again and again has the loop's later turns


class Publisher(Protocol):
    """Who may have to wait."""

    def hold_reading(self, hold: bool) -> None:
        """Say no more, or go on."""


class Pressure:
    """One per hub; looks at the queue after each tick."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._shares: dict[Publisher, int] = {}
        self._held: dict[Publisher, None] = {}
        self.is_behind = False
        """Whether what a connection stages has to be told: see ``staged``."""

    def look(self) -> Iterable[Publisher]:
        """See how long the queue is; returns who may go on."""
        queued = self._hub.queued_bytes
        if not self.is_behind:
            self.is_behind = queued > INGEST_BEHIND_BYTES
            return ()
        if queued > _SHORT_BYTES:
            return ()
        self.is_behind = False
        self._shares.clear()
        released, self._held = self._held, {}
        return released

    def staged(self, publisher: Publisher, size: int) -> None:
        """It has staged so much more since ``is_behind``; who has had its share says no more for now."""
        share = self._shares.get(publisher, 0) + size
        self._shares[publisher] = share
        if share > INGEST_SHARE_BYTES and publisher not in self._held:
            self._held[publisher] = None
            publisher.hold_reading(True)

    def holds(self, publisher: Publisher) -> bool:
        """Whether it waits for the queue to be short."""
        return publisher in self._held

    def forget(self, publisher: Publisher) -> None:
        """It has left."""
        self._shares.pop(publisher, None)
        self._held.pop(publisher, None)


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
        self._slice_ends_ns = now_ns + SLICE_NS
        budget = self._budget  # `begin`, written out: this is for each read of a socket
        budget.left = budget.grain
        budget.spent = False
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


logger = logging.getLogger("headrace.broker")


class Pump:
    """Runs one hub on one event loop, in that loop's thread."""

    def __init__(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        self.hub = hub
        self.loop = loop
        self.connections: dict[int, Connection | InProcessConnection] = {}
        self.slices = Slices(hub, self.wake)
        self.pressure = Pressure(hub)
        self._tick_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self.reading_paused = False
        self._stopped = False
        self.is_ending = False
        """Whether the broker stops: who comes now is hung up on."""
        self._is_flushing = False  # a client of this loop may be called, which may move the clock
        self.is_moved_by_hand = False
        """Whether the hub's clock goes only when it is moved, after which ``catch_up`` is called."""

    def wake(self) -> None:
        """Something happened in the hub: a tick is due after this round of the loop."""
        if not self._tick_is_due:
            self._tick_is_due = True
            self.loop.call_soon(self._on_turn)

    def run(self, job: Callable[[], None]) -> None:
        """Do something to the hub from outside (a completed flush), and the tick after it, at once."""
        try:
            job()
        finally:
            self._tick()

    def catch_up(self) -> None:
        """The clock was moved: do what is due by now, and what that makes due."""
        if self._is_flushing:
            self.loop.call_soon(self.catch_up)
            return
        for _ in range(CAUGHT_UP_ROUNDS):
            if self._stopped:
                return
            try:
                self.hub.run_timers()
            finally:
                self._tick()
            deadline_ns = self.hub.next_deadline_ns()
            if deadline_ns is None or deadline_ns > self.hub.clock.monotonic_ns():
                return

    def stop(self) -> None:
        """No more ticks and timers."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush_all(self) -> None:
        """One tick, now."""
        hub = self.hub
        self._is_flushing = True
        try:
            hub.deliver()
            self._write(hub.to_write())  # who does not wait for the disk goes on meanwhile
            self._write(hub.settle())
        finally:
            self._is_flushing = False

    def _write(self, sessions: Iterable[Session]) -> None:
        for session in sessions:
            connection = self.connections.get(session.client_id)
            if connection is not None:
                connection.flush()
            else:
                session.take_output()  # nobody reads it any more

    @property
    def connections_max(self) -> int:
        return self.hub.options.connections_max

    def _on_turn(self) -> None:
        """The tick of a turn of the loop."""
        self._tick_is_due = False
        try:
            self._tick()
        finally:
            if self.slices.awaited and not (self.reading_paused or self._stopped):
                self.wake()
                self.slices.serve_waiting()
            else:
                self.slices.next_turn()

    def _tick(self) -> None:
        if self._stopped:
            return
        try:
            self.flush_all()
        finally:
            # A fault of ours in one tick must not be the end of all later ones.
            if self.hub.touched:
                self.wake()  # or writing unblocked somebody, who has sent more
            self._regulate_reading()
            self._arm()

    def _regulate_reading(self) -> None:
        released = self.pressure.look()
        for publisher in released:
            publisher.hold_reading(self.reading_paused)
        if released:
            self.wake()
        blocked = self.hub.ingest_blocked
        if blocked == self.reading_paused:
            return
        self.reading_paused = blocked
        logger.debug("reading %s: the disk is behind", "paused" if blocked else "resumed")
        for connection in self.connections.values():
            connection.hold_reading(blocked or self.pressure.holds(connection))
        if not blocked and self.slices.awaited:
            self.wake()

    def _arm(self) -> None:
        deadline_ns = self.hub.next_deadline_ns()
        if deadline_ns is None:
            return  # an armed timer finds nothing to do, which is cheaper than cancelling it
        if self.is_moved_by_hand and deadline_ns > self.hub.clock.monotonic_ns():
            return
        if self._timer is not None:
            if self._timer_ns <= deadline_ns:
                return
            self._timer.cancel()
        # Whole milliseconds, rounded up: uvloop takes less than half of one for none, and would call us
        # again and again until the time has come.
        delay_ms = max(0, -(-(deadline_ns - self.hub.clock.monotonic_ns()) // 1_000_000))
        self._timer_ns = deadline_ns
        self._timer = self.loop.call_later(delay_ms / 1e3, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self.hub.run_timers()
        finally:
            self.wake()
