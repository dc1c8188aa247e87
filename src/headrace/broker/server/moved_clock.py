"""A broker on a clock that a test moves: what is due by a move is done before the test goes on.

The test may move the clock in another thread than the broker's.

What the log says of the time of day is here, too: that it jumped, and that streams are ahead of it.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Final

from ...clock import BELIEVED_AFTER_NS, JUMP_NS, Clock, Jump, ManualClock, SystemClock
from ...errors import ConfigurationError
from ..core.hub import Hub
from .connections.pump import Pump

logger = logging.getLogger("headrace.broker")

_NS: Final = 1e9
_NAMED: Final = 5  # so many streams are named in one line
FOLLOWED_WITHIN_S: Final = 10.0  # a broker that is so busy, or stands still, fails the test
NEVER_NS: Final = (
    1 << 62
)  # 146 years: for what asks whether a client is alive, which goes by real time


def tell_of_jump(jump: Jump) -> None:
    """Log what became of a jump of the time of day."""
    by = f"{abs(jump.by_ns) / _NS:.1f} s {'ahead' if jump.by_ns > 0 else 'back'}"
    if jump.what == "seen":
        lasting = f"{BELIEVED_AFTER_NS / _NS:.0f} s"
        logger.warning("Clock: it jumped %s; followed when that has lasted %s", by, lasting)
    elif jump.what == "followed":
        logger.warning(
            "Clock: the jump %s has lasted and is followed; ages, schedules and pauses go by it", by
        )
    else:
        logger.warning("Clock: the jump %s is over, and had no effect", by)


def tell_of_streams_ahead(hub: Hub) -> None:
    """Log which streams have messages from later than it is now."""
    now_ns = hub.clock.now_ns()
    ahead = [
        (stream.store.state.last_ns - now_ns, stream.name)
        for account in hub.accounts
        if account.engine is not None
        for stream in account.engine.registry.streams.values()
        if stream.store.state.last_ns >= now_ns + JUMP_NS
    ]
    if ahead:
        ahead.sort(reverse=True)
        names = ", ".join(name for _, name in ahead[:_NAMED])
        logger.warning(
            "Clock: %d streams have messages from up to %.1f s later than it is now (%s%s); what they "
            "hold ages by their own time until the clock has caught up",
            len(ahead),
            ahead[0][0] / _NS,
            names,
            ", …" if len(ahead) > _NAMED else "",
        )


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
