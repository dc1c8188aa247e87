"""Noticing that the event loop stands still, and who made it, before that costs a pin."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..events import LoopBlocked

if TYPE_CHECKING:
    from ...client.events import Event
    from ..message import GroupMessage

BLOCKED_SHARE: Final = 0.1  # of a lease; two thirds may cost the pin
LOOKS_PER_BLOCK: Final = 4
LONG_S: Final = 0.02  # a handler that took less is not remembered

_log = logging.getLogger("headrace.groups")


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


class LoopWatch:
    """A timer that should come on time. While nothing is owned, nobody looks.

    Args:
        label: of the member.
        handler: its name.
        lease_s: how long a lease is.
        emit: takes events.
        current: a message that is being handled on the loop, if there is one.

    Attributes:
        kept_at: when a handler ended that may have kept the loop for a tenth of a lease or more.
        leases_lost, handlers_failed: how many handlers ended after their lease, and ended the membership.
        blocked_count, blocked_s, blocked_longest_s: how often the loop was found blocked for a tenth of a
            lease or more, for how long in all, and at the most.
    """

    def __init__(
        self,
        label: str,
        handler: str,
        lease_s: float,
        emit: Callable[[Event], None],
        current: Callable[[], GroupMessage | None],
    ) -> None:
        self._label = label
        self._handler = handler
        self._lease_s = lease_s
        self._emit = emit
        self._current = current
        self._loop = asyncio.get_running_loop()
        self._limit_s = lease_s * BLOCKED_SHARE
        self._every_s = self._limit_s / LOOKS_PER_BLOCK
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._longest: tuple[float, GroupMessage] | None = None  # since the last look
        self._is_logged = False
        self.kept_at = 0.0
        self.leases_lost = 0
        self.handlers_failed = 0
        self.blocked_count = 0
        self.blocked_s = 0.0
        self.blocked_longest_s = 0.0

    def begin(self) -> None:
        """Something is owned."""
        if self._timer is None:
            self._arm()

    def end(self) -> None:
        """Stop watching, as none is owned any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def took(self, seconds: float, message: GroupMessage) -> None:
        """A handler took so long on the loop, waiting or not; told of those that took ``LONG_S`` or more."""
        if seconds >= self._limit_s:
            self.kept_at = self._loop.time()
        if self._longest is None or self._longest[0] < seconds:
            self._longest = (seconds, message)

    def _arm(self) -> None:
        self._due = self._loop.time() + self._every_s
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        late = self._loop.time() - self._due
        longest, self._longest = self._longest, None
        self._arm()
        if late >= self._limit_s:
            self._blocked(late, self._current() if longest is None else longest[1])

    def _blocked(self, seconds: float, message: GroupMessage | None) -> None:
        self.blocked_count += 1
        self.blocked_s += seconds
        self.blocked_longest_s = max(self.blocked_longest_s, seconds)
        handler = self._handler if message is not None else ""
        subject = message.subject if message is not None else ""
        sequence = message.metadata.stream_seq if message is not None else 0
        if not self._is_logged:
            self._is_logged = True
            who = f"handler {handler} was at message {sequence} on {subject!r}"
            _log.warning(
                "%s: the event loop stood still for %.2f s while %s; its partitions may go to another "
                "instance when it does for two thirds of %g s. What blocks belongs on a thread: a plain "
                "function, or asyncio.to_thread. Further times are events (LoopBlocked).",
                self._label,
                seconds,
                who if message is not None else "no handler of it ran",
                self._lease_s,
            )
        self._emit(LoopBlocked(self._label, handler, subject, sequence, seconds, self._lease_s))

    def stats(self) -> MembershipStats:
        """The numbers so far."""
        return MembershipStats(
            loop_blocked=self.blocked_count,
            loop_blocked_seconds=self.blocked_s,
            loop_blocked_longest_seconds=self.blocked_longest_s,
            leases_lost=self.leases_lost,
            handlers_failed=self.handlers_failed,
        )


def name_of(handler: Callable[..., object]) -> str:
    """What a handler is called in texts."""
    handler = getattr(handler, "func", handler)
    name = getattr(handler, "__qualname__", "") or type(handler).__qualname__
    return f"{getattr(handler, '__module__', '')}.{name}".lstrip(".")
