"""The heartbeat between an event loop and the hub: ticks, timers, and reading under pressure.

A tick follows every round of input: JetStream finishes its batch, then each touched connection is
written once, then those go on who have said more than there was time for (``slices``). The loop arms at
most one timer, for the hub's next deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...core.hub import Hub
from ...core.net.session import Session
from .connection import Connection
from .pressure import Pressure
from .slices import Slices

if TYPE_CHECKING:
    from .inprocess import InProcessConnection

logger = logging.getLogger("headrace.broker")

CAUGHT_UP_ROUNDS = 1000  # what asks for "now" again and again has the loop's later turns


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
