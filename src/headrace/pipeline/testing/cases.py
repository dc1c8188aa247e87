"""Rows as plain values of JSON, compared without regard to their order. Pure."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from ...documents import read_json
from ...files import SHARED, write_whole
from ..model import Declared, PipelineError, Place, Problem, did_you_mean

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


KINDS: Final = ("sources", "views", "sinks")
_SUFFIX: Final = ".jsonl"


@dataclass(frozen=True)
class Given:
    """A row that a source is given, and where it stands."""

    row: Row
    place: Place


@dataclass(frozen=True)
class Case:
    """One test. ``given``: rows by source; ``expected``: rows by kind (``views``, ``sinks``) and name."""

    name: str
    folder: Path
    given: Mapping[str, Sequence[Given]]
    expected: Mapping[tuple[str, str], Sequence[Row]]

    def file(self, kind: str, name: str) -> Path:
        """Where the rows of a part stand."""
        return self.folder / kind / f"{name}{_SUFFIX}"


def folder_of(declared: Declared) -> Path:
    """Where the tests of a pipeline lie."""
    return declared.file.with_suffix(".tests")


def read_cases(declared: Declared, names: Sequence[str] = ()) -> list[Case]:
    """The tests of a pipeline.

    Args:
        names: only these; default: all.

    Raises:
        PipelineError: there are none, there is none of a name, or something is wrong with the files.
    """
    folder = folder_of(declared)
    found = (
        sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    )
    if not found:
        source = next(iter(declared.sources), "SOURCE")
        text = (
            f"there are no tests of {declared.file.name}. Write what a source is given to {folder.name}/CASE/"
            f"sources/{source}{_SUFFIX}, a row of JSON a line; then headrace pipeline test --update writes "
            "down what the sinks get"
        )
        raise PipelineError([Problem(Place(folder), text)])
    problems = [
        Problem(Place(folder), f"there is no test {name!r}{did_you_mean(name, found)}")
        for name in names
        if name not in found
    ]
    cases = [_case(declared, folder / name, problems) for name in names or found if name in found]
    if problems:
        raise PipelineError(problems)
    return cases


def _case(declared: Declared, folder: Path, problems: list[Problem]) -> Case:
    parts: dict[str, Iterable[str]] = {
        "sources": declared.sources,
        "views": declared.views,
        "sinks": declared.sinks,
    }
    for each in sorted(folder.iterdir()):
        if each.name not in KINDS and not each.name.startswith("."):
            text = f"not known here{did_you_mean(each.name, KINDS)}"
            problems.append(Problem(Place(each), text))
    given: dict[str, list[Given]] = {}
    expected: dict[tuple[str, str], list[Row]] = {}
    for kind in KINDS:
        for file in sorted((folder / kind).iterdir()) if (folder / kind).is_dir() else ():
            if file.name.startswith("."):
                continue
            if file.suffix != _SUFFIX or file.stem not in parts[kind]:
                hint = did_you_mean(file.stem, parts[kind])
                text = f"the pipeline has no {kind.removesuffix('s')} of this name{hint}"
                if file.suffix != _SUFFIX:
                    text = f"rows are in files {_SUFFIX}, one of JSON a line"
                problems.append(Problem(Place(file), text))
                continue
            rows = _rows(file, problems)
            if kind == "sources":
                given[file.stem] = rows
            else:
                expected[kind, file.stem] = [each.row for each in rows]
    if not given:
        text = f"no source is given anything: write {KINDS[0]}/NAME{_SUFFIX}"
        problems.append(Problem(Place(folder), text))
    return Case(folder.name, folder, given, expected)


def _rows(file: Path, problems: list[Problem]) -> list[Given]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        problems.append(Problem(Place(file), f"cannot be read: {reason}"))
        return []
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        place = Place(file, number)
        if not line.strip():
            continue
        try:
            row: Any = read_json(line)
        except ValueError as error:
            problems.append(Problem(place, f"no JSON: {error}"))
            continue
        if not isinstance(row, dict):
            problems.append(Problem(place, "a line is a row: an object of JSON, {…}"))
            continue
        found.append(Given(row, place))
    return found


def write_expected(file: Path, rows: Sequence[Row], before: Sequence[Row]) -> int:
    """Write what came as what is expected: the columns that were expected before, or all of them.

    Rows that were expected keep their places, so that a change is read as one. Returns how many there are.
    """
    chosen = columns_of(before) or columns_of(rows)
    lines = sorted(as_line(row, chosen) for row in rows)
    left = list(lines)
    kept = []
    for line in (as_line(row, chosen) for row in before):
        if line in left:
            left.remove(line)
            kept.append(line)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, "".join(f"{line}\n" for line in [*kept, *left]), SHARED)
    return len(lines)
