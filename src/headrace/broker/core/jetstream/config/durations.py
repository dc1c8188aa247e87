"""Durations as Go writes them: ``1h2m3.5s``, ``250ms``."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_CHARS_MAX: Final = 64
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> int | None:
    """Nanoseconds, or None when the text is no duration."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if len(rest) > _CHARS_MAX:
        return None
    if rest == "0":
        return 0
    total = 0.0
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            return None
        number, unit = part.groups()
        total += float(number) * _UNITS[unit] if "." in number else int(number) * _UNITS[unit]
        position = part.end()
    if position == 0:
        return None
    return -round(total) if negative else round(total)


def format_duration(duration_ns: int) -> str:
    """As Go prints it: ``2s``, ``1m30s``, ``250ms``, ``1h0m0s``."""
    if duration_ns == 0:
        return "0s"
    sign = "-" if duration_ns < 0 else ""
    left = abs(duration_ns)
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if left < size * 1000:
            return f"{sign}{_decimal(left, size)}{unit}"
    minutes, rest_ns = divmod(left, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest_ns, _UNITS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def _decimal(value: int, size: int) -> str:
    whole, fraction = divmod(value, size)
    digits = len(str(size)) - 1
    return f"{whole}.{fraction:0{digits}d}".rstrip("0").rstrip(".") if fraction else str(whole)
