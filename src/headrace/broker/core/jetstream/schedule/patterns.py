"""When a message schedule fires: ``@at <time>``, ``@every <duration>``, ``@daily`` and its like, or cron."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from .....api.base import DocumentError
from .....api.times import parse_time
from ..config.durations import parse_duration
from .cron import Cron, parse_cron

__all__ = ["Firing", "next_firing"]

_NS: Final = 1_000_000_000
_CHANGES_MAX: Final = (
    32  # of clocks before a pattern's next time; a leap day's is eight years ahead
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PRESETS: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


class Firing(NamedTuple):
    """A time in nanoseconds, and whether there will be others after it."""

    time_ns: int
    repeats: bool


def next_firing(pattern: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Firing | None:
    """The next time after ``after_ns``; a repeating schedule skips what lies before ``now_ns``.

    None when the pattern is none, or never fires. Only cron patterns know a time zone.
    """
    if pattern.startswith("@at "):
        at_ns = _read_time(pattern[4:])
        return Firing(at_ns, False) if at_ns and zone is None else None
    if pattern.startswith("@every "):
        step_ns = parse_duration(pattern[7:])
        if step_ns is None or step_ns < _NS or zone is not None:
            return None
        next_ns = _round(after_ns) + step_ns
        return Firing(next_ns if next_ns >= now_ns else _round(now_ns) + step_ns, True)
    cron = parse_cron(_PRESETS.get(pattern, pattern))
    found_ns = _next_cron(cron, zone, after_ns) if cron is not None else None
    if cron is not None and found_ns is not None and found_ns < now_ns:
        found_ns = _next_cron(cron, zone, _round(now_ns))
    return Firing(found_ns, True) if found_ns is not None else None


def _read_time(text: str) -> int:
    try:
        return parse_time(text)
    except DocumentError:
        return 0


def _round(time_ns: int) -> int:
    """To the nearest second."""
    return (time_ns + _NS // 2) // _NS * _NS


def _next_cron(cron: Cron, zone: tzinfo | None, after_ns: int) -> int | None:
    """The next time on the wall clock of the zone, in nanoseconds.

    Where clocks go forward, the times left out do not happen; where they go back, an hour happens twice.
    """
    wall = zone or UTC
    second = timedelta(seconds=1)
    try:
        start = _EPOCH + timedelta(seconds=after_ns // _NS) + second
        for _ in range(_CHANGES_MAX):
            offset = _offset(start, wall)
            found = cron.next_after((start + offset - second).replace(tzinfo=None))
            if found is None:
                return None
            candidate = found.replace(tzinfo=UTC) - offset
            if _offset(candidate, wall) == offset:
                return _seconds(candidate) * _NS
            # The clocks change before: look again from then on.
            start = _change(start, candidate, wall)
    except OverflowError:
        pass  # beyond the year 9999: never
    return None


def _offset(instant: datetime, wall: tzinfo) -> timedelta:
    return instant.astimezone(wall).utcoffset() or timedelta()


def _seconds(instant: datetime) -> int:
    passed = instant - _EPOCH
    return passed.days * 86_400 + passed.seconds


def _change(low: datetime, high: datetime, wall: tzinfo) -> datetime:
    """The first second, after ``low``, of another offset; ``high`` has one."""
    before = _offset(low, wall)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if _offset(middle, wall) == before:
            low = middle
        else:
            high = middle
    return high
