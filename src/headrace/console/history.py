"""Numbers over time, for the curves: fixed memory, whatever the age. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

POINTS_MAX: Final = 900  # half an hour at a look every two seconds
SERIES_MAX: Final = 2_000  # of all kinds together; more are not followed


class History:
    """The newest numbers of many series, each under a key, as ``(time_s, values)``."""

    def __init__(self, points_max: int = POINTS_MAX, series_max: int = SERIES_MAX) -> None:
        self._points_max = points_max
        self._series_max = series_max
        self._series: dict[str, deque[tuple[float, dict[str, float]]]] = {}

    def add(self, key: str, time_s: float, values: Mapping[str, float]) -> None:
        """Append one point. ``time_s`` is in seconds since the Unix epoch."""
        series = self._series.pop(key, None)
        if series is None:
            series = deque(maxlen=self._points_max)
            if len(self._series) >= self._series_max:
                del self._series[next(iter(self._series))]
        series.append((time_s, dict(values)))
        self._series[key] = series  # the newest last

    def add_all(self, time_s: float, points: Mapping[str, Mapping[str, float]]) -> None:
        """One point for each of these series; the others are forgotten.

        Of too many the last ones are kept. Were it those added last, each would push out another one
        before its turn came, and none had a past.
        """
        kept = list(points)[-self._series_max :]
        for key in self._series.keys() - kept:
            del self._series[key]
        for key in kept:
            self.add(key, time_s, points[key])

    def columns(self, key: str) -> dict[str, list[float | None]]:
        """The points of one series by column, as a plot takes them: ``time`` and each value's name."""
        points = self._series.get(key, ())
        names = list(dict.fromkeys(name for _, values in points for name in values))
        columns: dict[str, list[float | None]] = {"time": [time_s for time_s, _ in points]}
        for name in names:
            columns[name] = [values.get(name) for _, values in points]
        return columns


def rate(before: float, after: float, seconds: float) -> float:
    """How quickly a counter grew, per second; 0 if it was reset or no time has passed."""
    if seconds <= 0 or after < before:
        return 0.0
    return (after - before) / seconds
