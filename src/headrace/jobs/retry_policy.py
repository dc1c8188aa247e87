"""When a failed job is retried, and when calls to a failing endpoint stop. Pure: randomness is passed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from ..retries import pause_s
from . import limits
from .errors import bad_request

__all__ = [
    "BreakerPolicy",
    "RetryPolicy",
    "retry_delay_s",
    "with_kind",
]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses before each retry.

    ``exponential`` doubles ``base_s`` up to ``cap_s``, and subtracts a random part of up to ``jitter``
    (0..1). ``schedule`` is the predecessor's: the list ``delays_s``, then multiples of its last element (5,
    30, 60 continues with 120, 180, …).
    """

    kind: Literal["schedule", "exponential"] = "exponential"
    delays_s: tuple[float, ...] = limits.RETRY_DELAYS_S_DEFAULT
    base_s: float = limits.RETRY_BASE_S_DEFAULT
    cap_s: float = limits.RETRY_CAP_S_DEFAULT
    jitter: float = limits.RETRY_JITTER_DEFAULT

    def check(self) -> None:
        """Reject an invalid policy: 400, with the field."""
        if not self.delays_s or any(not _is_delay(delay) for delay in self.delays_s):
            raise bad_request(
                "invalid_retry",
                "delays_s needs one or more delays of 0 s to 7 days",
                "retry.delays_s",
            )
        if not _is_delay(self.base_s) or self.base_s == 0:
            raise bad_request(
                "invalid_retry", "base_s must be above 0 s, at most 7 days", "retry.base_s"
            )
        if not _is_delay(self.cap_s) or self.cap_s < self.base_s:
            raise bad_request("invalid_retry", "cap_s must be base_s to 7 days", "retry.cap_s")
        if not 0 <= self.jitter <= 1:
            raise bad_request("invalid_retry", "jitter must be 0 to 1", "retry.jitter")


def with_kind(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a policy as they were given; a list of delays without a kind is a schedule."""
    return {"kind": "schedule", **given} if "delays_s" in given else dict(given)


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds at which calls to a failing endpoint are suspended, and the consumer is disabled.

    After ``failures`` failed attempts in a row the breaker opens for ``open_s``; then one probe at a time
    is allowed. After ``disable_after_s`` without a single success the consumer is disabled.
    """

    failures: int = 10
    open_s: float = 30.0
    disable_after_s: float = 5 * 24 * 3600.0

    def check(self) -> None:
        """Reject an invalid policy: 400, with the field."""
        if self.failures < 1:
            raise bad_request("invalid_breaker", "failures must be 1 or more", "breaker.failures")
        if not 0 < self.open_s <= 3600:
            raise bad_request(
                "invalid_breaker", "open_s must be above 0 s, at most 1 h", "breaker.open_s"
            )
        if self.disable_after_s < 1:
            raise bad_request(
                "invalid_breaker", "disable_after_s must be 1 s or more", "breaker.disable_after_s"
            )


def retry_delay_s(
    policy: RetryPolicy,
    retry: int,
    random: Callable[[], float],
    retry_after_s: float | None = None,
) -> float:
    """Seconds before retry number ``retry`` (1 is the first).

    The endpoint's ``Retry-After`` can lengthen the wait, up to an hour, but never shorten it. ``random``
    returns numbers in [0, 1).
    """
    if retry < 1:
        raise ValueError(f"retry is {retry}; the first retry is number 1")
    if policy.kind == "schedule":
        listed = len(policy.delays_s)
        beyond = retry - listed
        delay = policy.delays_s[-1] * (beyond + 1) if beyond > 0 else policy.delays_s[retry - 1]
    else:
        delay = pause_s(retry, policy.base_s, policy.cap_s)
        delay -= delay * policy.jitter * random()
    if retry_after_s is not None:
        delay = max(delay, min(retry_after_s, limits.RETRY_AFTER_S_MAX))
    return min(delay, limits.RETRY_DELAY_S_MAX)


def _is_delay(value: float) -> bool:
    return 0 <= value <= limits.RETRY_DELAY_S_MAX
