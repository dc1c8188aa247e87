"""A running query of Spark, as the runner looks at it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.pipeline.checkpoints.totals import ViewRows
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.causes import cause_of
from headrace.pipeline.running.run import SparkQuery, batch_of, behind, status_of_java
from headrace.pipeline.spark_errors import sentence_of

from ..conftest import ORDERS


@pytest.mark.parametrize(
    ("end", "latest", "messages"),
    [
        ({"seq": 5, "epoch": "x", "v": 1}, {"seq": 9, "epoch": "x", "v": 1}, 4),
        ('{"seq": 5}', '{"seq": 5}', 0),
        ({"s": {"A": {"seq": 5}}}, {"s": {"A": {"seq": 7}, "B": {"seq": 3}}}, 5),
        ({"s": {"A": {"seq": 5}}}, None, None),
        ("17", {"rate": 1}, None),
        ("no json", "no json", None),
    ],
)
def test_how_far_it_is_behind(end: Any, latest: Any, messages: int | None) -> None:
    assert behind(end, latest) == messages


def test_a_batch_of_what_spark_reports(write: Callable[..., Path]) -> None:
    more = (
        '[views.v]\nsql = "SELECT * FROM orders"\n[[views.v.expect]]\ncheck = "a > 0"\n'
        '[[views.v.expect]]\nname = "b"\ncheck = "b > 0"\n'
    )
    declared = read(write(ORDERS + more))
    progress = {
        "name": "out",
        "batchId": 7,
        "numInputRows": 20,
        "durationMs": {"addBatch": 30, "triggerExecution": 50},
        "observedMetrics": {"v": {"rows": 20, "failed_0": 2, "failed_1": 0}, "mine": {"x": 1}},
        "sources": [{"endOffset": {"v": 1, "seq": 5}, "latestOffset": {"seq": 8, "v": 1}}],
    }
    batch = batch_of(declared, progress)
    assert (batch.query, batch.number, batch.rows, batch.seconds) == ("out", 7, 20, 0.05)
    assert (batch.behind, batch.rows_per_s) == (3, 400.0)
    assert json.loads(batch.ends[0]) == {"seq": 5, "v": 1}
    assert batch.views == {"v": ViewRows(20, {"a > 0": 2, "b": 0})}
    assert batch.rows_out == 0, "Spark has left the counting out, as no row came"
    out = {"headrace-out": {"rows": 18}}
    assert batch_of(declared, {**progress, "observedMetrics": out}).rows_out == 18
    told = {**progress, "name": "another", "sink": {"numOutputRows": 17}}
    assert batch_of(declared, told).rows_out == 17
    assert batch_of(declared, {**progress, "name": "another"}).rows_out is None
    late = {"stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}]}
    assert batch_of(declared, {**progress, **late}).late == 3
    assert not batch_of(declared, progress, 7).was_written, "it ran again, with its rows"
    nothing = {**progress, "numInputRows": 0}
    assert batch_of(declared, nothing, 7).was_written
    assert not batch_of(declared, nothing, 6).was_written, "there were none"


class Gone:
    """A query whose Spark was killed."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


def test_spark_s_death_is_the_error_of_its_queries(write: Callable[..., Path]) -> None:
    gone: Any = Gone()
    query = SparkQuery(read(write(ORDERS)), gone, ended=lambda: None)
    assert not query.is_active()
    assert query.batches(-1) == []
    assert str(query.error()) == (
        "Spark's Java has gone: it was killed, or has crashed; spark.log may say why"
    )
    query.stop()


def test_a_java_that_ended_without_memory_says_so_and_what_helps(
    write: Callable[..., Path],
) -> None:
    gone: Any = Gone()
    query = SparkQuery(read(write(ORDERS)), gone, ended=lambda: 52)
    error = query.error()
    assert error is not None
    cause = cause_of(error)
    assert cause.kind == "java", "it is begun again, in a Java of its own"
    assert cause.text.startswith("Java has run out of memory")
    assert '"spark.driver.memory"' in cause.text


class Process:
    """Java, which ends with a status, or does not."""

    def __init__(self, status: int | None) -> None:
        self._status = status

    def wait(self, timeout: float) -> int:
        if self._status is None:
            raise subprocess.TimeoutExpired("java", timeout)
        return self._status


@pytest.mark.parametrize("status", [52, -9, None])
def test_the_status_of_java_is_that_of_its_process(
    monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=Process(status)))
    assert status_of_java() == status
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace())
    assert status_of_java() is None, "it was not started here"


PAGES = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
\tat org.apache.spark.Frame(Frame.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 3, in read
    raise DataLossError("gone")
{error}

\tat org.apache.spark.Frame(Frame.scala:2)
"""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("headrace.spark.offsets.DataLossError: stream 'A' is gone", "stream 'A' is gone"),
        ("headrace.errors.RequestTimeoutError: no answer", "no answer"),
        (
            "ZeroDivisionError: division by zero",
            "ZeroDivisionError: division by zero (x.py:3, in read)",
        ),
        (
            "SparkRuntimeException: [USER_RAISED_EXCEPTION] view v: a row fails SQLSTATE: P0001",
            "view v: a row fails",
        ),
    ],
)
def test_pages_of_spark_become_a_sentence(error: str, sentence: str) -> None:
    assert sentence_of(PAGES.replace("{error}", error)) == sentence


def test_other_errors_keep_their_first_line() -> None:
    text = "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'P"
    assert sentence_of(text) == "[UNRESOLVED_COLUMN] A column `x` cannot be resolved."
    assert sentence_of(ValueError("a b\nc")) == "ValueError: a b"
    assert sentence_of("x" * 999) == "x" * 999, "nothing is cut from what somebody has to read"
