"""Who waits for a leader, of one connection: told when the first begins, and when the last goes on."""

from __future__ import annotations

from collections.abc import Callable

from ..events import Event, LeaderWaitOver, WaitingForLeader


class LeaderWaits:
    """The calls and publishers of one connection that wait for a leader. There is an event when the first one
    begins to wait, and one when the last one goes on or gives up.

    Args:
        time: the loop's.
        emit: tells of both.
    """

    def __init__(self, time: Callable[[], float], emit: Callable[[Event], object]) -> None:
        self._time = time
        self._emit = emit
        self._waiting: dict[str, tuple[int, float]] = {}  # how many, and since when
        self.total = 0

    @property
    def count(self) -> int:
        """How many wait at this moment: calls, and publishers."""
        return sum(count for count, _ in self._waiting.values())

    def begin(self, of: str) -> None:
        """Somebody waits for the leader of this."""
        self.total += 1
        count, since = self._waiting.get(of, (0, self._time()))
        self._waiting[of] = (count + 1, since)
        if not count:
            self._emit(WaitingForLeader(of))

    def end(self, of: str, found: bool) -> None:
        """One of them waits no longer."""
        count, since = self._waiting.pop(of)
        if count > 1:
            self._waiting[of] = (count - 1, since)
        else:
            waited = self._time() - since
            self._emit(LeaderWaitOver(of, waited, found))


class LeaderWait:
    """One call or publisher: says once that it waits and for whom, and once that it does no longer."""

    def __init__(self, waits: LeaderWaits) -> None:
        self._waits = waits
        self._of = ""

    def begin(self, of: str) -> None:
        """It waits for the leader of this, unless it does already."""
        if not self._of:
            self._of = of
            self._waits.begin(of)

    def end(self, *, found: bool) -> None:
        """It waits no longer, if it did."""
        if self._of:
            of, self._of = self._of, ""
            self._waits.end(of, found)
