"""What went wrong at a member so far, as numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MembershipStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipStats:
    """The numbers of one membership since it began.

    Attributes:
        loop_blocked: how often the event loop stood still for a tenth of the lease or more.
        loop_blocked_seconds: for how long in all.
        loop_blocked_longest_seconds: and at the most.
        leases_lost: handlers that ended when their partition was not surely this instance's any more.
        handlers_failed: failures that ended the membership.
    """

    loop_blocked: int = 0
    loop_blocked_seconds: float = 0.0
    loop_blocked_longest_seconds: float = 0.0
    leases_lost: int = 0
    handlers_failed: int = 0
