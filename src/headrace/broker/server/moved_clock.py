"""A broker on a clock that a test moves: what is due by a move is done before the test goes on.

The test may move the clock in another thread than the broker's.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Final

from ...clock import Clock, ManualClock, SystemClock
from ...errors import ConfigurationError
from .connections.pump import Pump

FOLLOWED_WITHIN_S: Final = 10.0  # a broker that is so busy, or stands still, fails the test
NEVER_NS: Final = (
    1 << 62
)  # 146 years: for what asks whether a client is alive, which goes by real time


def checked(clock: Clock | None) -> Clock:
    """``clock``, or the machine's. Raises ConfigurationError: it is none."""
    if clock is None:
        return SystemClock()
    for method in ("now_ns", "monotonic_ns"):
        if not callable(getattr(clock, method, None)):
            raise ConfigurationError(
                f"clock is {clock!r}, which has no {method}(); accepted: a headrace.clock.ManualClock, "
                "or another headrace.clock.Clock"
            )
    return clock


class MovedClock:
    """What a ``ManualClock`` shows, as one broker sees it: it changes in the broker's thread only."""

    def __init__(self, source: ManualClock) -> None:
        self._source = source
        self._now_ns, self._monotonic_ns = source.readings()
        self._pump: Pump | None = None
        self._thread = 0

    def now_ns(self) -> int:
        """Wall-clock time in nanoseconds since the Unix epoch."""
        return self._now_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds since the source was made."""
        return self._monotonic_ns

    def begin(self, pump: Pump) -> None:
        """Follow the source from now on, for this pump; in the broker's thread."""
        self._pump, self._thread = pump, threading.get_ident()
        pump.is_moved_by_hand = True
        self._read()
        self._source.follow(self._moved)

    def end(self) -> None:
        """Stop following it. May be called again."""
        self._source.unfollow(self._moved)

    def _read(self) -> None:
        self._now_ns, self._monotonic_ns = self._source.readings()

    def _moved(self) -> None:
        """In the thread of whoever moved the source."""
        pump = self._pump
        if pump is None:
            return
        if threading.get_ident() == self._thread:
            self._read()
            pump.catch_up()  # a client in this loop asks the broker without a turn of the loop between
            return
        done: Future[None] = Future()
        try:
            pump.loop.call_soon_threadsafe(self._follow, pump, done)
        except RuntimeError:
            return  # the loop was closed without stopping the broker: nobody goes by this clock
        try:
            done.result(FOLLOWED_WITHIN_S)
        except TimeoutError:
            raise TimeoutError(
                f"the broker has not followed its clock within {FOLLOWED_WITHIN_S:g} s: its thread is busy"
            ) from None

    def _follow(self, pump: Pump, done: Future[None]) -> None:
        self._read()
        try:
            pump.catch_up()
        finally:
            done.set_result(None)
