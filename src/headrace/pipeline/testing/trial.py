"""Runs a pipeline's test: the rows that its sources are given, through its views, as one batch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import HeadraceError
from ..model import Declared, PipelineError, Place, Problem, Sink, Source
from ..options import JETSTREAM
from ..queries.frames import Frames
from ..session.class_archive import end_listing
from ..session.session import LOCAL_SETTINGS, QUICK_JAVA, check_java, settings_of, start_session
from ..spark_errors import sentence_of
from .cases import Case, Difference, Given, Row, compare, plain, write_expected
from .given import frame_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Plans are interpreted as they are; a file that says otherwise has its way."""


class Came(NamedTuple):
    """The rows of a view or a sink. ``moments``: the columns that are moments."""

    rows: list[Row]
    columns: list[str]
    moments: list[str]


@dataclass(frozen=True)
class Checked:
    """What came of one expectation: how it differs; ``written``: rows written as expected, or None."""

    file: Path
    difference: Difference
    written: int | None = None


@dataclass(frozen=True)
class Result:
    """How a case ended. ``problems``: why it could not be run, or has nothing to compare."""

    case: str
    checked: tuple[Checked, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all rows are as expected."""
        return not self.problems and not any(each.difference for each in self.checked)


def session_for_tests(declared: Declared, log: Path) -> SparkSession:
    """A small session of this machine, whatever the file says. Raises ConfigurationError: no Java."""
    conf = {
        key: value
        for key, value in settings_of(declared).items()
        if not key.startswith(("spark.archives", "spark.pyspark", "spark.kubernetes"))
    }
    name = f"headrace pipeline test {declared.name}"
    folder = declared.file.parent.absolute()
    return start_small_session(name, log, conf, folder, keeps_classes=True)


def end_session_for_tests(spark: SparkSession, results: Sequence[Result]) -> None:
    """End it; Java's classes are kept for the next ones, in the background, if a case could be run."""
    from pyspark import SparkContext

    spark.stop()
    could_run = any(not each.problems for each in results)
    end_listing(SparkContext._gateway, is_wanted=could_run)


def start_small_session(
    name: str,
    log: Path,
    conf: Mapping[str, str] = LOCAL_SETTINGS,
    folder: Path | None = None,
    *,
    keeps_classes: bool = False,
) -> SparkSession:
    """One thread of this machine, one task after a shuffle. Raises ConfigurationError: no Java.

    Most of what Java does for a few rows is to make and compile code for them; so it does neither.
    """
    check_java()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)
    small = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
    settings = {**_INTERPRETED, **conf, **small}
    return start_session(name, "local[1]", settings, log, folder, keeps_classes=keeps_classes)


class Trial:
    """A pipeline whose sources are given rows, in a session of Spark."""

    def __init__(self, declared: Declared, spark: SparkSession) -> None:
        self._declared = declared
        self._spark = spark

    def rows(self, given: Mapping[str, Sequence[Given]], kind: str, name: str) -> Came:
        """The rows that come of a view or a sink. Raises PipelineError: a part is refused, or a row."""
        sinks = self._declared.sinks
        sink = sinks[name] if kind == "sinks" else _nowhere(self._declared, name)
        frame = _Given(self._spark, self._declared, sink.name, given).of_sink(sink)
        try:
            table: Any = frame.toArrow()
        except Exception as error:
            raise PipelineError([Problem(sink.place, sentence_of(error))]) from error
        rows: list[Row] = [
            {column: plain(value) for column, value in row.items()} for row in rows_of(table)
        ]
        moments = [
            field.name for field in frame.schema.fields if "timestamp" in field.dataType.typeName()
        ]
        return Came(rows, list(frame.columns), moments)

    def check(self, case: Case, *, update: bool = False) -> Result:
        """Compare what comes of a case with what it expects.

        Args:
            update: write down what comes: for what is expected, and for sinks if nothing is.
        """
        wanted = list(case.expected)
        if not wanted and not update:
            text = (
                "nothing is expected: write views/NAME.jsonl or sinks/NAME.jsonl, or use --update"
            )
            return Result(case.name, problems=(Problem(Place(case.folder), text),))
        checked, problems = [], []
        for kind, name in wanted or [("sinks", name) for name in self._declared.sinks]:
            try:
                came = self.rows(case.given, kind, name)
            except PipelineError as error:
                problems += [each for each in error.problems if each not in problems]
                continue
            checked.append(_checked(case, kind, name, came, update=update))
        return Result(case.name, tuple(checked), tuple(problems))


def _checked(case: Case, kind: str, name: str, came: Came, *, update: bool) -> Checked:
    file = case.file(kind, name)
    expected = case.expected.get((kind, name), ())
    difference = compare(expected, came.rows, came.columns, came.moments)
    if not update or (not difference and (kind, name) in case.expected):
        return Checked(file, difference)
    before = expected if not difference.columns else ()
    known = [row for row in before if set(row) <= set(came.columns)]
    return Checked(file, Difference(), write_expected(file, came.rows, known))


def _nowhere(declared: Declared, view: str) -> Sink:
    """A sink of a view that is looked at."""
    return Sink(view, declared.views[view].place, of=view)


class _Given(Frames):
    """The DataFrames of a query whose sources are given rows."""

    def __init__(
        self,
        spark: SparkSession,
        declared: Declared,
        query: str,
        given: Mapping[str, Sequence[Given]],
    ) -> None:
        super().__init__(spark, declared, query, bounds={})
        self._given = given

    def _read(self, source: Source) -> DataFrame:
        rows = self._given.get(source.name)
        if rows is None and source.format != JETSTREAM and not source.streaming:
            return super()._read(source)  # a table beside the pipeline
        try:
            return frame_of(self._spark, source, rows or ())
        except PipelineError:
            raise
        except HeadraceError as error:
            raise PipelineError([Problem(source.place, str(error))]) from error
