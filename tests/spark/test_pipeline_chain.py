"""Queries that follow each other through a stream that is written exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline.checking.sources_and_sinks import check
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.running.run import run_here
from headrace.pipeline.status.status import status_of

from .conftest import ON_OURS, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROWS = 40

FILE = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
restart = {{ attempts = 20, backoff = "100ms" }}
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}", maxOffsetsPerTrigger = 20, minMessagesPerTask = 10 }}
[sources.copies]
[sources.copies.options]
stream = "{out}"
servers = "{url}"
valueFormat = "json"
valueSchema = "number int"
[views.numbers]
sql = "SELECT CAST(substring(CAST(data AS string), 2) AS int) AS number FROM orders"
[sinks.copy]
from = "numbers"
format = "jetstream"
[sinks.copy.options]
servers = "{url}"
stream = "{out}"
subject = "{out}.rows"
delivery = "exactlyOnce"
sinkId = "copy"
[sinks.end]
from = "copies"
format = "json"
options = {{ path = "end" }}
after = "copy"
"""


class Deaf:
    """Hears nothing of a run."""

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: None


def rows(folder: Path) -> list[dict[str, Any]]:
    files = [file for file in folder.glob("part-*") if file.is_file()]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@ON_OURS
def test_a_chain_through_a_stream_has_the_rows_and_no_marker(
    spark: SparkSession, make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    feed, out = make_feed(), make_feed(allow_atomic=True)
    own = [f"{out.name}.>", f"_sink.{out.name}.>"]
    config = {"name": out.name, "subjects": own, "allow_atomic": True}
    assert "error" not in out.call(f"STREAM.UPDATE.{out.name}", config)
    file = tmp_path / "numbers.toml"
    file.write_text(FILE.format(stream=feed.name, out=out.name, url=feed.url))
    declared = read(file)
    for turn in (1, 2):
        first = ROWS * (turn - 1) + 1
        feed.publish_numbers(first, ROWS * turn)
        ended = run_here(declared, spark, Deaf(), once=True)
        assert [(each.state, each.problem) for each in ended] == [("done", None)] * 2
        found = rows(tmp_path / "end")
        assert sorted(each["number"] for each in found) == [*range(1, ROWS * turn + 1)]
        assert all(each.get("_rescued") is None for each in found)
    total = out.control.stream_info().state.messages
    assert total > 2 * ROWS, "there are markers beside the rows"
    _, end = status_of(declared)
    assert (end.totals.rows, end.waiting) == (2 * ROWS, 0)
    _, told = check(declared)
    assert any("markers" in each for each in told), told
