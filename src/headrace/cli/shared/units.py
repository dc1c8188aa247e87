"""Durations, sizes and times as they are typed and as they are shown. Pure, but for click's types."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only since click 8.4

_UNITS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
    "d": 86_400.0, "w": 604_800.0, "M": 2_592_000.0, "y": 31_536_000.0,
}  # fmt: skip
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d|w|M|y)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_POWERS: Final = "kmgtp"


def parse_duration(text: str) -> float:
    """Seconds: ``90s``, ``1h30m``, ``7d``; a number without a unit is seconds. Raises ValueError."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration; accepted: 500ms, 90s, 1h30m, 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


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


class Parsed(_ParamType):
    """A type of option made of a function that raises ValueError with what is accepted."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = Parsed("duration", parse_duration)
SIZE: Final = Parsed("size", parse_size)
MOMENT: Final = Parsed("time", lambda text: parse_moment(text, datetime.now(UTC)))


def bytes_text(count: float) -> str:
    """``1.5 MiB``."""
    if count < 0:
        return "unlimited"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def count_text(count: float) -> str:
    """``1,234``."""
    return "unlimited" if count < 0 else f"{count:,.0f}"


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


def ago(text: str | None, now: datetime) -> str:
    """How long ago an RFC 3339 time was: ``1m30s``; ``never`` for the zero time or none."""
    if not text or text.startswith("0001-"):
        return "never"
    return duration_text(max(0, round((now - moment_of(text)).total_seconds())))


def moment_of(text: str) -> datetime:
    """A time of the server's, RFC 3339 with nanoseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
