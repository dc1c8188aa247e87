"""Whole queries over streams that were put back: with state, files, keys, and a folder that was moved."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.cli import main
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.running.run import run_here

from .conftest import Feed
from .queries import copied, put_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

PIPELINE = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
on_failure = "continue"
restart = false
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}"{more} }}
[views.numbers]
sql = "SELECT CAST(substring(CAST(data AS string), 2) AS int) AS number FROM orders"
[views.totals]
sql = "SELECT count(*) AS many, sum(number) AS total FROM numbers"
[sinks.files]
from = "numbers"
format = "parquet"
options = {{ path = "out" }}
[sinks.state]
from = "totals"
mode = "complete"
python = "kept.py:take"
[views.last]
sql = "SELECT number, CAST(number % 3 AS string) AS k FROM numbers"
[sinks.keyed]
from = "last"
format = "jetstream"
options = {{ stream = "{target}", servers = "{url}", subject = "{target}.{{k}}", key = "k" }}
"""
KEPT = """
import json
from pathlib import Path


def take(rows, number):
    (row,) = rows.collect()
    Path(__file__).with_name("totals.json").write_text(json.dumps([row["many"], row["total"]]))
"""


class Deaf:
    """Hears nothing of a run."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class Whole:
    """A pipeline of three queries in a folder."""

    def __init__(self, spark: SparkSession, feed: Feed, target: Feed, folder: Path) -> None:
        self.spark, self.feed, self.target, self.folder = spark, feed, target, folder
        folder.mkdir()
        (folder / "kept.py").write_text(KEPT)
        self.declare()

    @property
    def file(self) -> Path:
        return self.folder / "numbers.toml"

    def declare(self, more: str = "") -> None:
        names = {"stream": self.feed.name, "target": self.target.name, "url": self.feed.url}
        self.file.write_text(PIPELINE.format(more=more, **names))

    def run(self) -> dict[str, str]:
        """Why each query failed; "" of one that did not."""
        ended = run_here(read(self.file), self.spark, Deaf(), once=True)
        return {each.query: str(each.problem or "") for each in ended}

    def has(self, last: int) -> None:
        """Each query has every number up to the last one, once."""
        found = self.spark.read.parquet(str(self.folder / "out")).collect()
        assert sorted(row.number for row in found) == list(range(1, last + 1))
        totals = json.loads((self.folder / "totals.json").read_text())
        assert totals == [last, last * (last + 1) // 2]
        kept: dict[bytes, Any] = {}
        end = self.target.control.head()[0].last_seq
        for message in self.target.stored(range(1, end + 1)):
            kept[message.subject] = json.loads(message.payload)["number"]
        assert set(kept.values()) == {last, last - 1, last - 2}


def test_queries_go_on_over_a_stream_that_was_put_back_as_the_error_says(
    spark: SparkSession, make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    feed, target = make_feed(), make_feed()
    whole = Whole(spark, feed, target, tmp_path / "here")
    feed.publish_numbers(1, 30)
    assert set(whole.run().values()) == {""}
    put_back(feed, copied(feed, tmp_path / "same"))
    feed.publish_numbers(31, 40)
    assert set(whole.run().values()) == {""}, "it is the same stream"
    whole.has(40)
    # The tail is lost, and its sequences are given to other messages.
    put_back(feed, tmp_path / "same")
    feed.publish_numbers(41, 60)
    for problem in whole.run().values():
        assert "is not the one this query read before" in problem
        assert "onStreamReset=continue" in problem
    whole.declare(', onStreamReset = "continue"')
    assert set(whole.run().values()) == {""}
    whole.has(60)
    # The folder is moved, and a batch that was killed has left a file.
    shutil.move(whole.folder, tmp_path / "there")
    whole.folder = tmp_path / "there"
    (problem,) = {text for text in whole.run().values() if text}
    assert f"headrace pipeline relocate {whole.file} --query files" in problem
    assert main(["pipeline", "relocate", str(whole.file)]) == 0
    whole.has(60)
    (some, *_) = (whole.folder / "out").glob("part-*.parquet")
    shutil.copyfile(some, some.with_name(f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"))
    assert set(whole.run().values()) == {""}
    files = sorted((whole.folder / "out").glob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 60
    feed.publish_numbers(61, 70)
    assert set(whole.run().values()) == {""}
    whole.has(70)
