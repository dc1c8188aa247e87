"""Whether a query that failed is begun again, and when. Pure: causes and times are handed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ...retries import pause_s
from ..model import RestartSettings
from .causes import Cause

SAME_MAX: Final = 3
"""So often may a query fail in the same way at the same place before that is a mistake."""
WAIT_MAX_S: Final = 60.0


@dataclass(frozen=True)
class Again:
    """Begin it again after ``wait_s`` seconds. ``times``: how often it failed in this way at this place."""

    attempt: int
    wait_s: float
    times: int


@dataclass(frozen=True)
class Stop:
    """It stays failed. ``why``: a clause to put behind the cause; "" where there is nothing to add."""

    why: str = ""


class Restarts:
    """The failures of one query."""

    def __init__(self, settings: RestartSettings) -> None:
        self._settings = settings
        self._at: deque[float] = deque()
        self._same = 0
        self._last: tuple[str, int] | None = None
        self._in_a_row = 0
        self._position: int | None = None

    def failed(self, cause: Cause, position: int, now: float) -> Again | Stop:
        """What follows from a failure.

        Args:
            position: the last batch that was finished; a batch after it covers the same offsets every time.
            now: seconds, of any clock.
        """
        settings = self._settings
        if not settings.attempts or cause.kind == "mistake":
            return Stop()
        self._count(cause, position)
        if self._same >= SAME_MAX and cause.kind != "away" and not cause.is_of_the_machine:
            return Stop(
                f"it failed in the same way at the same place {self._same} times, which is no accident"
            )
        while self._at and self._at[0] <= now - settings.within_s:
            self._at.popleft()
        if len(self._at) >= settings.attempts:
            often = f"{settings.attempts} time{'s' if settings.attempts > 1 else ''}"
            return Stop(f"it was begun again {often} within {settings.within_s:g} s (restart)")
        self._at.append(now)
        wait_s = pause_s(self._in_a_row, settings.backoff_s, WAIT_MAX_S)
        return Again(len(self._at), wait_s, self._same)

    def _count(self, cause: Cause, position: int) -> None:
        same = (cause.signature, position)
        self._same = self._same + 1 if same == self._last else 1
        self._in_a_row = self._in_a_row + 1 if position == self._position else 1
        self._last, self._position = same, position
