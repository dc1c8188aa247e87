"""Durations, sizes and times as click's types, and as they are shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ...quantities import bytes_text as bytes_text
from ...quantities import counted as counted
from ...quantities import duration_text as duration_text
from ...quantities import moment_of as moment_of
from ...quantities import parse_duration as parse_duration
from ...quantities import parse_moment as parse_moment
from ...quantities import parse_size as parse_size

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only since click 8.4


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
