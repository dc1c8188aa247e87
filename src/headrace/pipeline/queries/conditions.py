"""Expectations as conditions in SQL: what passes, what goes aside, what is counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..checkpoints.totals import ViewRows
from ..model import WRITTEN_AS_FILES, Expectation, Sink

ROWS: Final = "rows"
OUT: Final = "headrace-out"
"""Under this name the rows for a sink are counted; no view can have it."""
FAILED_COLUMN: Final = "failed"
"""The column of a quarantined row that lists the expectations it failed."""


def failed(expectation: Expectation) -> str:
    """True for a row that does not fulfil it; a check that is NULL is not fulfilled."""
    return f"NOT coalesce(({expectation.check}), false)"


def passes(view: str, expectations: Sequence[Expectation]) -> str:
    """True for the rows that go on; a row that fails where it must not ends the query."""
    conditions = ["true"]
    for each in expectations:
        if each.otherwise == "fail":
            text = _literal(
                f"view {view}: a row fails the expectation {each.name!r} ({each.place})"
            )
            conditions.append(
                f"CASE WHEN coalesce(({each.check}), false) THEN true ELSE raise_error({text}) END"
            )
    removing = [each for each in expectations if each.otherwise in ("drop", "quarantine")]
    conditions += [f"coalesce(({each.check}), false)" for each in removing]
    return " AND ".join(conditions)


def quarantine(expectations: Sequence[Expectation]) -> str:
    """True for the rows that fail one of these."""
    return " OR ".join(failed(each) for each in expectations)


def reasons(expectations: Sequence[Expectation]) -> str:
    """The names of the expectations that a row fails, as an array."""
    names = [f"CASE WHEN {failed(e)} THEN {_literal(e.name)} END" for e in expectations]
    return f"array_compact(array({', '.join(names)}))"


def counts(expectations: Sequence[Expectation]) -> list[str]:
    """What is counted of each batch: its rows, and those that fail each expectation."""
    counting = [f"count_if({failed(e)}) AS failed_{i}" for i, e in enumerate(expectations)]
    return [f"count(1) AS {ROWS}", *counting]


def is_counted(sink: Sink) -> bool:
    """Whether a sink's rows are counted on their way to it: Spark does not ask it how many it got."""
    is_function = sink.function is not None or sink.mode != "append"
    return is_function or sink.format.lower() in WRITTEN_AS_FILES


def counted(expectations: Sequence[Expectation], observed: Mapping[str, Any]) -> ViewRows:
    """What Spark has counted by ``counts``."""
    names = [each.name for each in expectations]
    failures = {name: int(observed.get(f"failed_{i}") or 0) for i, name in enumerate(names)}
    return ViewRows(int(observed.get(ROWS) or 0), failures)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
