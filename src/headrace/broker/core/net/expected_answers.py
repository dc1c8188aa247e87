"""Answers a client may publish because it was asked, whatever its other permissions say."""

from __future__ import annotations

from typing import Final

from ....clock import Clock
from ..auth.permissions import ResponsePermission

__all__ = ["ExpectedAnswers"]

EXPECTED_MAX: Final = 65_536  # one more request: the oldest can no longer be answered


class ExpectedAnswers:
    """The reply subjects of the requests one client received and may still answer."""

    __slots__ = ("_clock", "_permission", "_replies")

    def __init__(self, permission: ResponsePermission, clock: Clock) -> None:
        self._permission = permission
        self._clock = clock
        # How many answers are left, and until when. All expire after the same time: oldest first.
        self._replies: dict[bytes, tuple[int, int]] = {}

    def expect(self, reply: bytes) -> None:
        """A request with this reply subject was delivered."""
        now_ns = self._clock.monotonic_ns()
        replies = self._replies
        replies.pop(reply, None)
        while replies:
            oldest = next(iter(replies))
            if replies[oldest][1] > now_ns and len(replies) < EXPECTED_MAX:
                break
            del replies[oldest]
        replies[reply] = (self._permission.messages_max, now_ns + self._permission.expires_ns)

    def take(self, subject: bytes) -> bool:
        """Whether a message to ``subject`` is an expected answer, which then is one fewer."""
        found = self._replies.get(subject)
        if found is None:
            return False
        left, until_ns = found
        if until_ns <= self._clock.monotonic_ns():
            del self._replies[subject]
            return False
        if left > 1:
            self._replies[subject] = (left - 1, until_ns)
        else:
            del self._replies[subject]
        return True
