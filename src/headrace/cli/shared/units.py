"""Durations, sizes and times as they are typed and as they are shown. Pure, but for click's types."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from ...quantities import bytes_text as bytes_text
from ...quantities import counted as counted
from ...quantities import duration_text as duration_text
from ...quantities import moment_of as moment_of

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


def count_text(count: float) -> str:
    """``1,234``."""
    return "unlimited" if count < 0 else f"{count:,.0f}"


def ago(text: str | None, now: datetime) -> str:
    """How long ago an RFC 3339 time was: ``1m30s``; ``never`` for the zero time or none."""
    if not text or text.startswith("0001-"):
        return "never"
    return duration_text(max(0, round((now - moment_of(text)).total_seconds())))
