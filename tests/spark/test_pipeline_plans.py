"""``headrace pipeline validate --plan``: what Spark says of a file before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.cli import main
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.running import run as of_runs

from .conftest import Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILE = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
restart = {{ attempts = 20, backoff = "100ms" }}
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}
[views.counted]
sql = "{sql}"
[views.once]
python = "views.py:once"
[sinks.out]
from = "counted"
format = "noop"
mode = "update"
[sinks.once]
from = "once"
format = "noop"
"""
COUNTED = (
    "SELECT window(timestamp, '5 minutes') AS w, count(*) AS n FROM orders "
    "GROUP BY window(timestamp, '5 minutes')"
)
VIEWS = """
def once(orders):
    print("printed by a view")
    return orders.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["data"])
"""


class Kept:
    """The session of all tests, which nobody ends."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def stop(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


class Deaf:
    """Hears nothing of a run."""

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: None


@pytest.fixture
def feed(headrace_process: Any) -> Feed:
    return Feed(headrace_process.url)


def test_columns_and_changes_of_state_are_told_in_lines_of_their_own(
    spark: SparkSession,
    feed: Feed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(of_runs, "session_of", lambda declared: Kept(spark))
    feed.publish_numbers(1, 3)
    (tmp_path / "views.py").write_text(VIEWS)
    file = tmp_path / "numbers.toml"
    text = FILE.format(stream=feed.name, url=feed.url, sql=COUNTED)
    file.write_text(text)
    command = ["pipeline", "validate", "--plan", str(file)]

    assert main(command) == 0
    said = capsys.readouterr()
    first, stream, replays, out, once = said.out.splitlines()
    assert "no mistakes found" in first
    assert stream == f"  stream {feed.name} has 3 messages"
    assert replays.startswith("  query 'once' cannot be replayed: it leaves out duplicates within")
    assert out == "  out: w struct<start:timestamp,end:timestamp>, n bigint"
    assert once.startswith("  once: ")
    assert said.err == ""
    log = tmp_path / "checkpoint" / "numbers" / "spark.log"
    assert "printed by a view" in log.read_text()

    declared = read(file)
    alone = replace(declared, sinks={"out": declared.sinks["out"]})
    assert [each.problem for each in of_runs.run_here(alone, spark, Deaf(), once=True)] == [None]
    file.write_text(text.replace("5 minutes", "10 minutes"))
    assert main(command[:2] + command[3:]) == 0, "without Spark the state is not compared"
    assert "it keeps state of count(1) by windows of 5m" in capsys.readouterr().out
    assert main(command) == 1
    (refused,) = capsys.readouterr().err.splitlines()
    assert refused.startswith(f"{file}:11: query 'out' kept state of count(1) by windows of 5m")
    assert "would now keep count(1) by windows of 10m of timestamp" in refused
    file.write_text(text.replace("count(*)", "count(amount)"))
    assert main(command) == 1
    (wrong,) = capsys.readouterr().err.splitlines()
    assert wrong.startswith(f"{file}:7: ")
    assert "amount" in wrong
    feed.close()
