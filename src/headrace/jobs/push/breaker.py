"""When to suspend calls to a failing endpoint, and how fast to call a good one. Pure: the time is passed
in.
"""

from __future__ import annotations

from enum import IntEnum

from ..policy import BreakerPolicy

__all__ = ["Breaker", "BreakerState", "Bucket"]


class BreakerState(IntEnum):
    """As shown in the metrics."""

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
        """How many calls may begin now; ``None`` means no limit."""
        if self.state is BreakerState.OPEN and now_s >= self._open_until_s:
            self.state, self._probing = BreakerState.HALF_OPEN, False
        if self.state is BreakerState.CLOSED:
            return None
        return int(self.state is BreakerState.HALF_OPEN and not self._probing)

    def wait_s(self, now_s: float) -> float | None:
        """How long until a probe is allowed, if the breaker is open."""
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
        """How many calls may begin now; ``None`` means no limit."""
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
        """How long until the next call is allowed, if none is now."""
        if not self._rate or self._tokens >= 1:
            return None
        return (1 - self._tokens) / self._rate
