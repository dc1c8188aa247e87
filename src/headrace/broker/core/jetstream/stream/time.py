"""The time of one stream: the clock's, but never before that of its newest message.

A stream is ahead where its newest message is from later than the clock says: the clock was set back, or was
wrong when the message came, or another server's was. Then the stream's time goes on at half the speed, until
the clock has caught up. It never stands, so it tells how old messages are that came meanwhile: at most twice
as long is too long, and never too short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .....clock import JUMP_NS, Clock

_SLOWER: Final = 2


class StreamTime:
    """See the module docstring. ``began`` is told when the stream is found to be a second or more ahead.

    A stream that ``is_empty`` goes by the clock: nothing is left in it that a time could go back behind.
    """

    __slots__ = (
        "_anchor_ns",
        "_began",
        "_is_empty",
        "_now_ns",
        "_since_ns",
        "_steady_ns",
        "ahead_from_ns",
        "last_ns",
    )

    def __init__(
        self, clock: Clock, is_empty: Callable[[], bool], began: Callable[[], object]
    ) -> None:
        self._now_ns = clock.now_ns
        self._steady_ns = clock.monotonic_ns
        self._is_empty = is_empty
        self._began = began
        self._anchor_ns = 0  # the time at which it was found ahead …
        self._since_ns = 0  # … and when that was
        self.last_ns = 0
        """The newest message's time, or later."""
        self.ahead_from_ns = 0
        """While the stream is ahead: of messages from later than this only its own time says how old they
        are. 0 while the clock does for all."""

    def now_ns(self) -> int:
        """The time for a message that comes now."""
        now_ns = self._now_ns()
        if now_ns < self.last_ns:
            now_ns = self._ahead(now_ns)
        elif self._anchor_ns:
            self._anchor_ns = self.ahead_from_ns = 0
        self.last_ns = now_ns
        return now_ns

    def of(self, stamp_ns: int, now_ns: int) -> int:
        """The time by which to judge a message of that time; ``now_ns`` is the clock's."""
        own_ns = self.now_ns()
        return own_ns if 0 < self.ahead_from_ns < stamp_ns else now_ns

    def left_ns(self, stamp_ns: int, due_ns: int) -> int:
        """How long it takes until ``due_ns`` has come for a message of that time."""
        own_ns = self.now_ns()
        if 0 < self.ahead_from_ns < stamp_ns:
            return (due_ns - own_ns) * _SLOWER
        return due_ns - self._now_ns()

    def _ahead(self, now_ns: int) -> int:
        if self._is_empty():
            self._anchor_ns = self.ahead_from_ns = 0
            return now_ns
        steady_ns = self._steady_ns()
        time_ns = self._anchor_ns + (steady_ns - self._since_ns) // _SLOWER
        if not self._anchor_ns or time_ns < self.last_ns:  # messages of others have come since
            time_ns = self._anchor_ns = self.last_ns
            self._since_ns = steady_ns
        lead_ns = time_ns - now_ns
        if lead_ns >= JUMP_NS and not self.ahead_from_ns:
            self.ahead_from_ns = now_ns
            self._began()
        elif self.ahead_from_ns > now_ns:
            self.ahead_from_ns = now_ns  # set back once more
            self._began()
        return time_ns
