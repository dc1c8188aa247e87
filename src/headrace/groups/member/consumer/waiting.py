"""How long a member waits for who uses a consumer that is in its way, and when it says that it waits. Pure.

Who is pinned may be handling messages, and so may who was, until a lease is over: a restarted server has
forgotten the pin. Nobody waits for longer than two pins last: somebody else's clock, or a client that pulls
for ever though it is no member any more, would keep the group standing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TELL_AFTER_S: Final = 1.0
"""A planned change is over by then."""

TELL_EVERY_S: Final = 5.0


class WaitForPinned:
    """One wait after the other, with one consumer name.

    Args:
        time: the loop's clock.
        lease_s: how long a former owner may be at work after it lost its pin.
        pin_s: how long a pin lasts without a pull.
    """

    __slots__ = ("_lease_s", "_pin_s", "_since", "_tell_at", "_time", "_unpinned_since")

    def __init__(self, time: Callable[[], float], *, lease_s: float, pin_s: float) -> None:
        self._time = time
        self._lease_s = lease_s
        self._pin_s = pin_s
        self._since: float | None = None
        self._unpinned_since: float | None = None
        self._tell_at: float | None = None

    def is_over(self, *, is_pinned: bool) -> bool:
        """The consumer was found in use: whether it may be deleted nevertheless."""
        now = self._time()
        if self._since is None:
            self._since = now
        if is_pinned:
            self._unpinned_since = None
        elif self._unpinned_since is None:
            self._unpinned_since = now
        if now - self._since >= 2 * self._pin_s:
            return True
        return self._unpinned_since is not None and now - self._unpinned_since >= self._lease_s

    def is_to_be_told(self) -> bool:
        """Called at each look, before the next one: whether it is time to say that it waits."""
        now = self._time()
        if self._tell_at is None:
            self._tell_at = now + TELL_AFTER_S
        if now < self._tell_at:
            return False
        self._tell_at = now + TELL_EVERY_S
        return True

    def end(self) -> None:
        """It no longer waits."""
        self._since = self._unpinned_since = self._tell_at = None
