"""The files of a pipeline's tests::

    orders.toml
    orders.tests/
        small/                       a case
            sources/orders.jsonl     what a source is given: a row a line, JSON
            views/paid.jsonl         what a view is to give
            sinks/rejected.jsonl     what a sink is to get

Everything that is wrong with them is told at once, each with its file and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...documents import read_json
from ...files import SHARED, write_whole
from ..model import Declared
from ..problems import PipelineError, Place, Problem, did_you_mean
from .rows import Row, as_line, columns_of

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
