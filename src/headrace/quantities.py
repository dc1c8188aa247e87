"""Sizes, durations and times as text: read, and written. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

_NS: Final = 1_000_000_000
_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": _NS, "m": 60 * _NS,
    "h": 3600 * _NS, "d": 86_400 * _NS, "w": 604_800 * _NS, "M": 2_592_000 * _NS, "y": 31_536_000 * _NS,
}  # fmt: skip
UNITS: Final = frozenset(_UNITS_NS)
GO_UNITS: Final = UNITS - {"d", "w", "M", "y"}
"""The units of durations in NATS: of its headers, its API and its files of configuration."""

_DURATION_CHARS_MAX: Final = 64
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|d|w|M|y)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_POWERS: Final = "kmgtp"


def duration_ns(text: str, units: Collection[str] = UNITS) -> int | None:
    """Read a duration as Go does: ``1h2m3.5s``, ``-250ms``, ``0``. Nanoseconds; None if it is none."""
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if not rest or len(rest) > _DURATION_CHARS_MAX:
        return None
    if rest == "0":
        return 0
    total = 0.0
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or part[2] not in units:
            return None
        number, unit = part.groups()
        total += (float(number) if "." in number else int(number)) * _UNITS_NS[unit]
        position = part.end()
    return -round(total) if negative else round(total)


def parse_duration(text: str) -> float:
    """Seconds: ``90s``, ``1h30m``, ``7d``; a number without a unit is seconds. Raises ValueError."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    found = duration_ns(text) if text[:1] not in ("-", "+") else None
    if found is None:
        raise ValueError(f"{text!r} is not a duration; accepted: 500ms, 90s, 1h30m, 7d")
    return found / _NS


def parse_size(text: str) -> int:
    """Bytes: ``512``, ``64K``, ``1GB``, ``2MiB``; units are powers of 1024, as in the nats tool.

    -1 means no limit. Raises ValueError.
    """
    if text == "-1":
        return -1
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size; accepted: 512, 64K, 1GB, 2MiB, -1 for no limit")
    number, unit, _ = found.groups()
    power = _POWERS.index(unit.lower()) + 1 if unit else 0
    return round(float(number) * (1 << 10 * power))


def parse_moment(text: str, now: datetime) -> datetime:
    """A time: RFC 3339, ``2026-11-22 10:30`` (UTC), or a duration before ``now``. Raises ValueError."""
    try:
        return now - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        pass  # it is a date, then
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; accepted: 2026-11-22T10:30:00Z, or how long ago: 90s, 1h, 7d"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def bytes_text(count: float) -> str:
    """``1.5 MiB``."""
    if count < 0:
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def counted(count: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def duration_text(seconds: float) -> str:
    """``2d3h``, ``1m30s``, ``1.50s``, ``250ms``; two units at most."""
    if seconds < 0:
        return "never"
    if seconds == 0:
        return "0s"
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms" if seconds >= 0.001 else f"{seconds * 1e6:.3g}µs"
    if seconds < 60:
        return f"{seconds:.2f}s" if seconds % 1 else f"{seconds:.0f}s"
    parts: list[tuple[int, str]] = []
    left = round(seconds)
    for unit, size in (("y", 31_536_000), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, unit))
    return "".join(f"{number}{unit}" for number, unit in parts[:2] if number)


def moment_of(text: str) -> datetime:
    """A time of the server's, RFC 3339 with nanoseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))


def go_duration_text(duration: int) -> str:
    """Nanoseconds as Go prints them: ``2s``, ``1m30s``, ``250ms``, ``1h0m0s``."""
    if duration == 0:
        return "0s"
    sign = "-" if duration < 0 else ""
    left = abs(duration)
    for unit in ("ns", "µs", "ms"):
        if left < _UNITS_NS[unit] * 1000:
            return f"{sign}{_decimal(left, _UNITS_NS[unit])}{unit}"
    minutes, rest_ns = divmod(left, _UNITS_NS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest_ns, _NS)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def _decimal(value: int, size: int) -> str:
    whole, fraction = divmod(value, size)
    digits = len(str(size)) - 1
    return f"{whole}.{fraction:0{digits}d}".rstrip("0").rstrip(".") if fraction else str(whole)
