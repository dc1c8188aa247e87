"""What pipelines tell a server: whoever may publish to their bucket may have stored anything there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.api.pipelines import NAME_MAX, PipelineRecord, QueryRecord, decode, encode
from headrace.console.pipelines import pipeline_row
from headrace.findings.finding import Findings
from headrace.findings.pipelines import judge_pipeline

NOW = 1_000_000_000.0
QUERY = {"state": "failed", "since": NOW, "error": "no", "error_at": NOW, "last_batch": NOW}
RECORD = {"name": "orders", "host": "h", "process": 1, "since": NOW, "written": NOW, "ended": 0.0}
TIMES = ("since", "written", "ended", "query since", "query error_at", "query last_batch")
VALUES = (
    "1e308",
    "-1e308",
    "-1",
    "1e14",
    "99999999999999999999999999",
    "1e400",
    "NaN",
    "null",
    '"x"',
)


def told(field: str, value: str) -> bytes:
    """A record with this text as the value of a field."""
    query, record = dict[str, Any](QUERY), dict[str, Any](RECORD)
    (query if field.startswith("query ") else record)[field.removeprefix("query ")] = "@"
    return json.dumps({**record, "queries": {"q": query}}).replace('"@"', value).encode()


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("field", TIMES)
def test_a_time_that_cannot_be_is_of_no_runner(field: str, value: str) -> None:
    assert decode(told(field, value)) is None


@pytest.mark.parametrize("value", ["0", "1e9", "253402300799"])
@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("state", ["failed", "restarting"])
def test_what_is_read_can_be_judged_and_shown(field: str, value: str, state: str) -> None:
    record = decode(told(field, value).replace(b'"failed"', json.dumps(state).encode()))
    assert record is not None
    for now in (0.0, NOW, 4 * NOW):
        judge_pipeline(Findings(), record, now)
        json.dumps(pipeline_row("key", record, now), allow_nan=False)


def test_long_names_are_cut() -> None:
    long = "x" * 100_000
    record = decode(
        encode(PipelineRecord(long, long, 1, NOW, NOW, queries={long: QueryRecord(state=long)}))
    )
    assert record is not None
    assert (record.name, record.host) == ("x" * NAME_MAX, "x" * NAME_MAX)
    ((name, query),) = record.queries.items()
    assert (name, query.state) == ("x" * NAME_MAX, "x" * NAME_MAX)
