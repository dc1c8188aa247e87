"""Rows of a pipeline that are made again: replays of a range, and checkpoints that were lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import ConfigurationError
from headrace.pipeline.checkpoints.checkpoint import Start
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Consent, Declared
from headrace.pipeline.running.run import replay, run_here

from .conftest import ON_OURS, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VIEWED = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
restart = {{ attempts = 20, backoff = "100ms" }}
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}
[views.numbers]
sql = "SELECT timestamp, CAST(substring(CAST(data AS string), 2) AS int) AS number FROM orders"
[views.made]
python = "views.py:{view}"
[sinks.out]
from = "made"
format = "json"
options = {{ path = "out" }}
"""
# A window of 18,250 days, up to 2069, holds every message of a test, on whichever day that runs.
VIEWS = """
from pyspark.sql import functions as F


def stored(numbers):
    late = numbers.withWatermark("timestamp", "1 minute")
    counted = late.groupBy(F.window("timestamp", "18250 days").alias("w")).agg(F.count("*").alias("number"))
    return counted.select("w.start", "number")


def told(numbers):
    times = numbers.select(F.timestamp_seconds("number").alias("at"))
    return times.groupBy(F.window("at", "10 seconds", "5 seconds")).agg(F.count("*").alias("number"))


def once(numbers):
    return numbers.withWatermark("timestamp", "1 minute").dropDuplicates(["number"]).select("number")


def once_for_a_while(numbers):
    return numbers.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["number"])
"""


# The one consumer that a work queue has: nobody may make another one to look for times and to count.
ONLY = {
    "action": "create",
    "config": {"name": "only", "durable_name": "only", "ack_policy": "explicit"},
}


def rows(folder: Path) -> list[int]:
    files = [file for file in folder.glob("part-*") if file.is_file()]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["number"] for line in lines)


@pytest.fixture
def viewed(feed: Feed, tmp_path: Path) -> Callable[[str], Declared]:
    (tmp_path / "views.py").write_text(VIEWS)

    def make(view: str) -> Declared:
        file = tmp_path / "numbers.toml"
        file.write_text(VIEWED.format(stream=feed.name, url=feed.url, view=view))
        return read(file)

    return make


@ON_OURS
def test_a_replay_says_which_windows_at_its_edges_are_partial(
    spark: SparkSession, feed: Feed, viewed: Callable[[str], Declared], tmp_path: Path
) -> None:
    feed.publish_numbers(1, 6)

    def replayed(view: str, name: str, first: str, last: str) -> list[str]:
        declared = viewed(view)
        out = declared.sinks["out"]
        begin, end = Start("sequence", first), Start("sequence", last)
        return replay(declared, spark, out, out, name, begin, end)

    window = (
        "windows of 18250d of timestamp: the one that begins at 2019-12-20T00:00:00Z is partial"
    )
    before = f"{window} and without messages of stream '{feed.name}' before sequence 2"
    behind = f"{window} and without messages of stream '{feed.name}' behind sequence 5"
    assert replayed("stored", "middle", "2", "5") == [before, behind]
    assert rows(tmp_path / "out-middle") == [4], "which is true of the rows"
    assert replayed("stored", "end", "2", "6") == [before]
    assert replayed("stored", "begin", "1", "5") == [behind]
    assert replayed("stored", "all", "1", "6") == []
    (said,) = replayed("told", "told", "2", "5")
    assert said.startswith("windows of 10s, every 5s of timestamp_seconds(")
    assert said.endswith("are partial where rows of theirs lie before or behind the range")
    config = {"name": feed.name, "subjects": [f"{feed.name}.>"], "retention": "workqueue"}
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create(**config)
    feed.call(f"CONSUMER.CREATE.{feed.name}.only", ONLY | {"stream_name": feed.name})
    feed.publish_numbers(1, 6)
    (said,) = replayed("stored", "queue", "2", "5")
    assert said.startswith("windows of 18250d of timestamp are partial where rows of theirs lie")
    assert rows(tmp_path / "out-queue") == [4]


def test_duplicates_are_left_out_of_a_replay_or_it_is_refused_before_a_row_is_written(
    spark: SparkSession, feed: Feed, viewed: Callable[[str], Declared], tmp_path: Path
) -> None:
    feed.publish_numbers(1, 3)
    feed.publish_numbers(2, 4)
    first, last = Start("earliest"), Start("latest")
    declared = viewed("once")
    out = declared.sinks["out"]
    assert replay(declared, spark, out, out, "fix", first, last) == []
    assert rows(tmp_path / "out-fix") == [1, 2, 3, 4]
    declared = viewed("once_for_a_while")
    out = declared.sinks["out"]
    with pytest.raises(ConfigurationError, match="query 'out' cannot be replayed: it leaves out"):
        replay(declared, spark, out, out, "no", first, last)
    assert not (tmp_path / "out-no").exists()


FUNCTION = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
restart = {{ attempts = 20, backoff = "100ms" }}
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}", durable = "shown" }}
[sinks.out]
from = "orders"
python = "sinks.py:write"
"""
SINK = """
from pathlib import Path


def write(rows, number, run):
    with (Path(__file__).parent / "written").open("a") as table:
        table.writelines(f"{row.sequence}\\n" for row in rows.collect())
"""


class Deaf:
    """Hears nothing of a run."""

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: None


@ON_OURS
def test_rows_are_written_again_after_a_lost_checkpoint_only_when_that_is_asked_for(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.publish_numbers(1, 3)
    (tmp_path / "sinks.py").write_text(SINK)
    file = tmp_path / "numbers.toml"
    file.write_text(FUNCTION.format(stream=feed.name, url=feed.url))

    def once(consent: Consent) -> str:
        (ended,) = run_here(read(file), spark, Deaf(), once=True, consent=consent)
        return ended.problem.text if ended.problem is not None else ""

    def written() -> list[int]:
        return [int(line) for line in (tmp_path / "written").read_text().splitlines()]

    assert once(Consent()) == ""
    assert written() == [1, 2, 3]
    shutil.rmtree(tmp_path / "checkpoint")
    refused = once(Consent())
    assert "its checkpoint is gone: durable 'shown'" in refused
    assert "3 messages again" in refused
    assert written() == [1, 2, 3], "nothing was written again without a word"
    assert once(Consent(again=True)) == ""
    assert written() == [1, 2, 3, 1, 2, 3]
