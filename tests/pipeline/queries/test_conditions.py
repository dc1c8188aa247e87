from __future__ import annotations

from pathlib import Path

from headrace.pipeline.checkpoints.totals import ViewRows
from headrace.pipeline.model import Expectation, Otherwise, Place
from headrace.pipeline.queries import conditions

PLACE = Place(Path("orders.toml"), 7)


def expectation(name: str, otherwise: Otherwise) -> Expectation:
    return Expectation(name, f"{name} > 0", PLACE, otherwise)


def test_who_fails_is_left_out_unless_it_is_kept() -> None:
    given = [expectation("a", "drop"), expectation("b", "quarantine"), expectation("c", "keep")]
    passing = conditions.passes("v", given)
    assert passing == "true AND coalesce((a > 0), false) AND coalesce((b > 0), false)"
    assert conditions.passes("v", given[2:]) == "true"


def test_who_must_not_fail_ends_the_query_with_name_and_line() -> None:
    passing = conditions.passes("v", [expectation("it's", "fail")])
    assert passing == (
        "true AND CASE WHEN coalesce((it's > 0), false) THEN true ELSE "
        "raise_error('view v: a row fails the expectation \"it\\'s\" (orders.toml:7)') END"
    )


def test_failed_rows_are_counted_by_expectation() -> None:
    given = [expectation("a", "drop"), expectation("b", "keep")]
    assert conditions.counts(given) == [
        "count(1) AS rows",
        "count_if(NOT coalesce((a > 0), false)) AS failed_0",
        "count_if(NOT coalesce((b > 0), false)) AS failed_1",
    ]
    seen = conditions.counted(given, {"rows": 5, "failed_0": 2, "failed_1": None})
    assert seen == ViewRows(5, {"a": 2, "b": 0})
