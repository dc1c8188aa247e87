"""How much may be ahead of a handler, and how old that has become. Without I/O: times are handed in."""

from __future__ import annotations

from collections import deque
from typing import Final

SHARE: Final = 0.5  # of the time to acknowledge, for what is ahead
GROWTH: Final = 8  # how many times as much may be ahead after each look
RENEW_AT: Final = 1 / 3  # of the time to acknowledge: what is so old is said to be in progress …
OVER_AT: Final = 3 / 4  # … and of what is so old nobody knows whether it is delivered again
GRAIN: Final = 1 / 16  # of it: ages are told apart so finely


class Pace:
    """How quickly messages are handled, and how many may be ahead of that.

    So many that they are handled in half of ``ack_wait`` seconds; at first none, as nothing is known, and
    at most ``most``. None at all means that the next one is pulled when the one before is handled.
    """

    __slots__ = ("_most", "_seconds", "_share", "room")

    def __init__(self, ack_wait: float, most: int) -> None:
        self._share = ack_wait * SHARE
        self._most = most
        self._seconds = 0.0  # that a message takes
        self.room = 0

    def follow(self, ack_wait: float) -> None:
        """It is another one now; the next look goes by it."""
        self._share = ack_wait * SHARE

    def handled(self, messages: int, seconds: float) -> None:
        """So many were handled in this time. Slowness counts at once, speed by and by."""
        sample = seconds / messages
        self._seconds = sample if sample > self._seconds else (self._seconds + sample) / 2
        fits = self._most
        if self._seconds * self._most > self._share:
            fits = int(self._share / self._seconds)
        self.room = min(fits, max(self.room, 1) * GROWTH, self._most)


class Ages:
    """Since when what is held is known to be awaited, in the order it came.

    Attributes:
        ack_wait: seconds after which a message is delivered again.
        in_order: whether what came first is taken first. If not, all of it is as old as the oldest may be.
    """

    __slots__ = ("_arrived", "_marks", "ack_wait", "in_order")

    def __init__(self, ack_wait: float, *, in_order: bool = True) -> None:
        self.ack_wait = ack_wait
        self.in_order = in_order
        self._arrived = 0
        self._marks: deque[tuple[int, float]] = deque()  # number of the last one, and since when

    @property
    def grain(self) -> float:
        """Seconds that make a difference."""
        return self.ack_wait * GRAIN

    def arrived(self, messages: int, now: float) -> None:
        """So many came."""
        self._arrived += messages
        marks = self._marks
        if marks and now - marks[-1][1] < self.ack_wait * GRAIN:
            marks[-1] = (self._arrived, marks[-1][1])
        else:
            marks.append((self._arrived, now))

    def doubt(self, since: float) -> None:
        """Whatever came after that may have been delivered then already."""
        self._marks = deque((last, min(when, since)) for last, when in self._marks)

    def look(self, held: int, now: float) -> tuple[int, bool]:
        """Of ``held`` messages, those that came last: how many of the oldest are over, and whether the others
        are to be renewed."""
        marks, first = self._marks, self._arrived - held
        if not self.in_order:
            if not held:
                marks.clear()
            age = now - marks[0][1] if marks else 0.0
            if age >= self.ack_wait * OVER_AT:
                self.renewed(now)  # all of it is let go of: what comes next is young
                return held, False
            return 0, age >= self.ack_wait * RENEW_AT
        while marks and marks[0][0] <= first:
            marks.popleft()
        over = 0
        for last, since in marks:
            age = now - since
            if age >= self.ack_wait * OVER_AT:
                over = last - first
            else:
                return over, age >= self.ack_wait * RENEW_AT
        return over, False

    def renewed(self, now: float) -> None:
        """All that is held is awaited anew."""
        self._marks = deque([(self._arrived, now)])

    def next_look(self, now: float) -> float:
        """When there is something to do, if nothing changes."""
        since = self._marks[0][1] if self._marks else now
        return max(since + self.ack_wait * RENEW_AT, now + self.grain)
