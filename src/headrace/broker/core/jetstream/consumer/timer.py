"""A consumer's one timer, and what only time decides: when a pause ends, and when nobody uses it any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from .....clock import Clock
from ...timers import Timer, TimerQueue
from .delivery_state import DeliveryState

_PATIENCE_NS: Final = 60_000_000_000  # the wall clock may be set, or go on while the machine sleeps
_GRACE_NS: Final = 100_000_000  # an inactive consumer stays this much longer than its threshold


class Timed(Protocol):
    """A part of a consumer that has something to do at times. Times are monotonic readings."""

    def next_time_ns(self) -> int | None:
        """When ``run_due`` has something to do; None while nothing waits for time."""

    def run_due(self, now_ns: int) -> None:
        """Do what is due by now."""


class ConsumerTimer:
    """Asks for one call at the earliest time any part has something to do."""

    def __init__(self, clock: Clock, timers: TimerQueue) -> None:
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._timer_ns = 0
        self._is_closed = False
        self.parts: Sequence[Timed] = ()
        """The parts it calls, in this order."""

    def arm(self) -> None:
        """Be called no later than any part has something to do."""
        times = [at_ns for part in self.parts if (at_ns := part.next_time_ns()) is not None]
        if not times or self._is_closed:
            return
        earliest = min(times)
        if self._timer is not None and self._timer_ns <= earliest:
            return
        self.cancel()
        self._timer_ns = earliest
        self._timer = self._timers.call_at(earliest, self._run)

    def cancel(self) -> None:
        """Stop the timer until it is armed again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._is_closed = True
        self.cancel()

    def _run(self) -> None:
        self._timer = None
        now_ns = self._clock.monotonic_ns()
        for part in self.parts:
            part.run_due(now_ns)
        self.arm()


class Pause:
    """Whether delivery is paused; ``ended`` is told the wall-clock time at which a pause was over."""

    def __init__(self, clock: Clock, ended: Callable[[int], None]) -> None:
        self._clock = clock
        self._ended = ended
        self.until_ns = 0
        """The wall-clock time, 0 without a pause."""

    def set(self, until_ns: int) -> None:
        """Pause until this wall-clock time; not at all if it has passed."""
        self.until_ns = until_ns if until_ns > self._clock.now_ns() else 0

    def holds(self, now_ns: int) -> bool:
        """Whether delivery is paused at this wall-clock time."""
        return self.until_ns > now_ns

    def next_time_ns(self) -> int | None:
        if not self.until_ns:
            return None
        steady_ns = self._clock.monotonic_ns()
        left_ns = self.until_ns - self._clock.now_ns()
        return steady_ns + min(left_ns, _PATIENCE_NS)

    def run_due(self, now_ns: int) -> None:
        if self.until_ns and not self.holds(self._clock.now_ns()):
            until_ns, self.until_ns = self.until_ns, 0
            self._ended(until_ns)


class Inactivity:
    """Ends a consumer that was not used for longer than its threshold.

    While somebody listens where it pushes to, it is used. One that is pulled from stays while
    ``is_awaited`` says that requests wait, after acks, and while deliveries have time left.
    """

    def __init__(
        self,
        clock: Clock,
        state: DeliveryState,
        *,
        is_listened: Callable[[], bool],
        is_awaited: Callable[[], bool] | None,
        end: Callable[[], None],
    ) -> None:
        """``is_awaited`` is None for a consumer that pushes."""
        self._state = state
        self._is_listened = is_listened
        self._is_awaited = is_awaited
        self._end = end
        self.threshold_ns = 0
        """0 for a consumer that stays."""
        self.last_active_ns = clock.monotonic_ns()
        """When the consumer was last pulled from, or delivered."""
        self.acked_lately = False
        """Whether an ack came since the last look."""

    def next_time_ns(self) -> int | None:
        if self.threshold_ns <= 0 or self._is_listened():
            return None
        return self.last_active_ns + self.threshold_ns + _GRACE_NS

    def run_due(self, now_ns: int) -> None:
        at_ns = self.next_time_ns()
        if at_ns is not None and at_ns <= now_ns and not self._is_used(now_ns):
            self._end()

    def _is_used(self, now_ns: int) -> bool:
        if self._is_awaited is None:
            return False
        if self._is_awaited() or self.acked_lately:
            self.acked_lately = False
            self.last_active_ns = now_ns
            return True
        latest_ns = max((entry[1] for entry in self._state.pending.values()), default=0)
        if latest_ns > self.last_active_ns:
            self.last_active_ns = latest_ns
            return True
        return False
