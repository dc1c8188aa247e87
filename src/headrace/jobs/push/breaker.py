"""Decides when calls to a failing endpoint are suspended, how fast a good one is called, and how many calls
may be under way in a process. Pure: the time is passed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from ..retry_policy import BreakerPolicy

__all__ = ["Breaker", "BreakerState", "Bucket", "Ceiling"]

_CONSUMERS_SHARE: Final = 8


class BreakerState(IntEnum):
    """State as shown in the metrics."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Opens after consecutive failures; after its open time it allows one probe at a time."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self.policy = policy
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._open_until_s = 0.0
        self._probing = False

    def allowance(self, now_s: float) -> int | None:
        """Number of calls that may begin now; ``None`` means no limit."""
        if self.state is BreakerState.OPEN and now_s >= self._open_until_s:
            self.state, self._probing = BreakerState.HALF_OPEN, False
        if self.state is BreakerState.CLOSED:
            return None
        return int(self.state is BreakerState.HALF_OPEN and not self._probing)

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until a probe is allowed, if the breaker is open."""
        return max(0.0, self._open_until_s - now_s) if self.state is BreakerState.OPEN else None

    def begin(self, calls: int) -> None:
        """``calls`` begin; in the half-open state that is the probe."""
        if self.state is BreakerState.HALF_OPEN and calls:
            self._probing = True

    def forget(self) -> None:
        """A call that was begun was not made: it says nothing, and another one may be the probe."""
        self._probing = False

    def record(self, ok: bool, now_s: float) -> bool:
        """A call ended. Returns whether this opened the breaker."""
        if ok:
            self.state, self._failures, self._probing = BreakerState.CLOSED, 0, False
            return False
        self._failures += 1
        opens = self.state is BreakerState.HALF_OPEN or (
            self.state is BreakerState.CLOSED and self._failures >= self.policy.failures
        )
        if opens:
            self.state, self._probing = BreakerState.OPEN, False
            self._open_until_s = now_s + self.policy.open_s
        return opens


class Bucket:
    """A token bucket: ``rate_per_s`` on average, one second's worth at once. 0 means no limit."""

    def __init__(self, rate_per_s: float, now_s: float, *, empty: bool = False) -> None:
        self._rate = rate_per_s
        self._size = max(1.0, rate_per_s)
        self._tokens = 0.0 if empty else self._size
        self._at_s = now_s

    def allowance(self, now_s: float) -> int | None:
        """Number of calls that may begin now; ``None`` means no limit."""
        if not self._rate:
            return None
        self._tokens = min(self._size, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        return int(self._tokens)

    def take(self, calls: int) -> None:
        """``calls`` begin."""
        if self._rate:
            self._tokens -= calls

    def wait_s(self) -> float | None:
        """Seconds until the next call is allowed, if none is now."""
        if not self._rate or self._tokens >= 1:
            return None
        return (1 - self._tokens) / self._rate


class Ceiling:
    """The calls that may be under way at once in a process, shared between channels and their consumers.

    A channel may have as many as it leaves free: half of all while it is alone, a third each of two, so that
    one that begins finds room however long the calls of others take. In a channel a consumer may have eight
    times what it leaves of that. Those that have none may have one as long as there is any.

    ``calls`` is how many there may be in all.
    """

    def __init__(self, calls: int) -> None:
        self._free = calls
        self._channels: Counter[str] = Counter()
        self._consumers: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[tuple[str, str], Callable[[], object]] = {}

    def take(self, channel: str, consumer: str, wanted: int, wake: Callable[[], object]) -> int:
        """Take up to ``wanted`` calls, and return how many. If none, ``wake`` is called when there is room
        again.
        """
        key = channel, consumer
        taken = min(wanted, self._allowance(key))
        if taken > 0:
            self._free -= taken
            self._channels[channel] += taken
            self._consumers[key] += taken
            self._waiting.pop(key, None)
        elif wanted > 0:
            self._waiting[key] = wake
        return max(0, taken)

    def give_back(self, channel: str, consumer: str, calls: int) -> None:
        """Note that so many calls have ended, or were not begun."""
        if not calls:
            return
        key = channel, consumer
        self._free += calls
        self._channels[channel] -= calls
        self._consumers[key] -= calls
        if not self._consumers[key]:
            del self._consumers[key]
        if not self._channels[channel]:
            del self._channels[channel]
        for waiting in self._waiting:
            if self._allowance(waiting) > 0:
                # Whoever finds nothing to call gives its room back, which wakes the next one.
                self._waiting.pop(waiting)()
                return

    def forget(self, channel: str, consumer: str) -> None:
        """The consumer waits no more."""
        self._waiting.pop((channel, consumer), None)

    def _allowance(self, key: tuple[str, str]) -> int:
        """Number of further calls that the consumer may begin now."""
        channel = self._channels.get(key[0], 0)
        consumer = self._consumers.get(key, 0)
        room = max((self._free - channel) // 2, int(not channel and self._free > 0))
        share = (_CONSUMERS_SHARE * room - consumer) // (_CONSUMERS_SHARE + 1)
        return max(share, int(not consumer and room > 0))
