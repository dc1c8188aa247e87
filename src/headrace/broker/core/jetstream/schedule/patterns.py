"""When a message schedule fires: ``@at <time>``, ``@every <duration>``, ``@daily`` and its like, or cron."""

from __future__ import annotations

from datetime import tzinfo
from typing import Final, NamedTuple

from .....api.base import DocumentError
from .....api.times import parse_time
from .....cron import PRESETS, next_time_ns, parse_cron
from .....quantities import GO_UNITS, duration_ns

_NS: Final = 1_000_000_000


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
        step_ns = duration_ns(pattern[7:], GO_UNITS)
        if step_ns is None or step_ns < _NS or zone is not None:
            return None
        next_ns = _round(after_ns) + step_ns
        return Firing(next_ns if next_ns >= now_ns else _round(now_ns) + step_ns, True)
    try:
        cron = parse_cron(PRESETS.get(pattern, pattern))
    except ValueError:
        return None
    found_ns = next_time_ns(cron, zone, after_ns)
    if found_ns is not None and found_ns < now_ns:
        found_ns = next_time_ns(cron, zone, _round(now_ns))
    return Firing(found_ns, True) if found_ns is not None else None


def _read_time(text: str) -> int:
    try:
        return parse_time(text)
    except DocumentError:
        return 0


def _round(time_ns: int) -> int:
    """To the nearest second."""
    return (time_ns + _NS // 2) // _NS * _NS
