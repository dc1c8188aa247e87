"""Rows as plain values of JSON, compared without regard to their order. Pure."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

Row = Mapping[str, Any]

_DIGITS: Final = 12
"""Floating numbers are equal where so many digits are: a sum depends on the order of its parts."""


def plain(value: Any) -> Any:
    """A value of a row as JSON has it.

    Moments are RFC 3339 in UTC, binary values texts, or ``{"base64": …}`` where they are none.
    """
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else _number(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _number(value: Decimal) -> float | str:
    """A number where it is the same one, else its text."""
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


@dataclass(frozen=True)
class Difference:
    """How rows differ from those that were expected: ``missing`` did not come, ``extra`` was not expected.

    ``columns``: those that are expected and that the rows do not have, with what they have.
    """

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    columns: str = ""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.columns)

    def lines(self, most: int = 0) -> list[str]:
        """``- row`` for what is missing, ``+ row`` for what is extra; at most so many of each, 0: all."""
        if self.columns:
            return [self.columns]
        shown = []
        for sign, rows in (("-", self.missing), ("+", self.extra)):
            kept = rows[:most] if most else rows
            shown += [f"{sign} {row}" for row in kept]
            if len(rows) > len(kept):
                shown.append(f"{sign} and {len(rows) - len(kept):,} more")
        return shown

    def __str__(self) -> str:
        if self.columns:
            return self.columns
        parts = ((self.missing, "missing"), (self.extra, "not expected"))
        return ", ".join(
            f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'} {what}"
            for rows, what in parts
            if rows
        )


def compare(
    expected: Sequence[Row],
    came: Sequence[Row],
    columns: Sequence[str],
    moments: Sequence[str] = (),
) -> Difference:
    """How rows differ, in the columns that the expected ones name; a key that a row leaves out is null.

    Args:
        came: rows that ``plain`` made, with all ``columns``.
        moments: the columns that are moments: there it is not the text that is compared.
    """
    named = columns_of(expected)
    unknown = [name for name in named if name not in columns]
    if unknown:
        text = (
            f"there is no column {', '.join(map(repr, unknown))}; there are: {', '.join(columns)}"
        )
        return Difference(columns=text)
    chosen = named or columns
    wanted = Counter(_key(row, chosen, moments) for row in expected)
    found = Counter(_key(row, chosen, moments) for row in came)
    shown = {_key(row, chosen, moments): as_line(row, chosen) for row in [*expected, *came]}
    return Difference(
        tuple(shown[key] for key in (wanted - found).elements()),
        tuple(shown[key] for key in (found - wanted).elements()),
    )


def columns_of(rows: Sequence[Row]) -> list[str]:
    """All keys of some rows, in the order in which they are first seen."""
    return list(dict.fromkeys(name for row in rows for name in row))


def as_line(row: Row, columns: Sequence[str]) -> str:
    """A row as a line of a file: the columns in their order."""
    return json.dumps({name: row.get(name) for name in columns}, ensure_ascii=False)


def _key(row: Row, columns: Sequence[str], moments: Sequence[str]) -> str:
    """A text that is equal for equal rows."""
    values = []
    for name in columns:
        value = row.get(name)
        if name in moments and isinstance(value, str):
            value = _moment(value)
        values.append(_same(value))
    return json.dumps(values, sort_keys=True)


def _moment(text: str) -> Any:
    try:
        return plain(datetime.fromisoformat(text))
    except ValueError:
        return text


def _same(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {str(key): _same(each) for key, each in value.items()}
    return [_same(each) for each in value]
