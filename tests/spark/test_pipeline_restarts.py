"""Pipelines whose workers and servers are killed: begun again, and the rows are those of plain Python."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import peers
from headrace import sync
from headrace.pipeline.checkpoints.totals import Batch, Totals
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.supervising import Outage
from headrace.pipeline.running.run import run_here
from headrace.pipeline.running.runner import Ended, Runner
from waiting import until_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),
]
WITHIN_S = 120.0
HALF, ALL = 200, 400

FILE = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"
restart = {{ attempts = 20, backoff = "100ms" }}

[sources.orders]
[sources.orders.options]
stream = "NUMBERS"
servers = "{url}"
durable = "orders"
maxOffsetsPerTrigger = 200
reconnectTimeout = "1s"

[views.numbers]
sql = "SELECT sequence, CAST(CAST(data AS string) AS bigint) AS number FROM orders"

[views.tenfold]
python = "views.py:tenfold"

[sinks.out]
from = "tenfold"
format = "parquet"
options = {{ path = "out" }}

[sinks.copy]
from = "numbers"
format = "jetstream"
[sinks.copy.options]
servers = "{url}"
stream = "COPY"
subject = "copy"
delivery = "exactlyOnce"
sinkId = "copy"
reconnectTimeout = "1s"
"""

VIEWS = """
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

HERE = Path({here!r})


def tenfold(numbers):
    return numbers.mapInArrow(multiplied, "sequence bigint, number bigint")


def multiplied(batches):
    if (HERE / "hold").exists():
        (HERE / "unfinished").write_text(str(os.getpid()))
        (HERE / "unfinished").rename(HERE / "in a batch")
    while (HERE / "hold").exists():
        time.sleep(0.02)
    for batch in batches:
        number = pc.multiply(batch.column("number"), 10)
        yield pa.RecordBatch.from_arrays([batch.column("sequence"), number], ["sequence", "number"])
"""


class Heard:
    """What happens in a run."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.restarts: list[tuple[str, int, str]] = []
        self.outages: list[str] = []
        self.back_again: list[str] = []

    def batch(self, batch: Batch, totals: Totals) -> None:
        self.last[batch.query] = json.loads(batch.ends[0])["seq"]

    def restarting(self, query: str, attempt: int, cause: str, wait_s: float) -> None:
        self.restarts.append((query, attempt, cause))

    def away(self, query: str, outage: Outage) -> None:
        self.outages.append(query)

    def back(self, query: str) -> None:
        self.back_again.append(query)

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: None


@pytest.fixture(params=peers.PLAYED_ON)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    """A server of its own, which may be killed."""
    yield from peers.either_running(request.param, tmp_path / "server")


def publish(url: str, first: int, last: int) -> None:
    with sync.connect(url) as connection, connection.jetstream().publisher() as publisher:
        for number in range(first, last + 1):
            publisher.send("numbers", b"%d" % number)


def written(folder: Path) -> list[tuple[int, int]]:
    """What readers of a file sink see: the files its log names."""
    files: set[str] = set()
    for log in (folder / "_spark_metadata").glob("[0-9]*"):
        files |= {json.loads(line)["path"] for line in log.read_text().splitlines()[1:]}
    tables = [pq.ParquetFile(file.removeprefix("file://")).read() for file in files]
    return sorted(
        pair
        for table in tables
        for pair in zip(table["sequence"].to_pylist(), table["number"].to_pylist(), strict=True)
    )


def copied(url: str) -> list[int]:
    with sync.connect(url) as connection:
        stream = connection.jetstream().stream("COPY")
        total = stream.info(subjects="copy").state.subjects["copy"]
        consumer = stream.ordered_consumer(filter_subjects=["copy"])
        return sorted(
            json.loads(each.payload)["number"] for each in consumer.fetch(total, max_wait=30)
        )


def test_a_killed_worker_and_a_killed_server_lose_no_row_and_write_none_twice(
    spark: SparkSession,
    server: peers.ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.pipeline.running.runner.TOLD_AFTER_S", 0.2)
    with sync.connect(server.url) as connection:
        js = connection.jetstream()
        js.create_stream(name="NUMBERS", subjects=["numbers"])
        js.create_stream(name="COPY", subjects=["copy", "_sink.COPY.>"], allow_atomic=True)
    publish(server.url, 1, HALF)
    (tmp_path / "views.py").write_text(VIEWS.format(here=str(tmp_path)))
    file = tmp_path / "orders.toml"
    file.write_text(FILE.format(url=server.url))
    (tmp_path / "hold").touch()
    heard = Heard()
    runners: list[Runner] = []
    wrong: list[BaseException] = []

    def events() -> None:
        until_here((tmp_path / "in a batch").exists, "no batch", within=WITHIN_S)
        (tmp_path / "hold").unlink()
        os.kill(int((tmp_path / "in a batch").read_text()), signal.SIGKILL)
        until_here(lambda: heard.restarts, "it is not begun again", within=WITHIN_S)
        until_here(
            lambda: heard.last == {"out": HALF, "copy": HALF}, "it goes no further", within=WITHIN_S
        )
        server.kill()
        until_here(lambda: set(heard.outages) == {"out", "copy"}, "not told", within=WITHIN_S)
        server.start_again()
        publish(server.url, HALF + 1, ALL)
        until_here(
            lambda: heard.last == {"out": ALL, "copy": ALL}, "it goes no further", within=WITHIN_S
        )
        until_here(  # told by who watches, a moment after the rows
            lambda: set(heard.back_again) == {"out", "copy"}, "not told", within=WITHIN_S
        )

    def play() -> None:
        try:
            events()
        except BaseException as error:
            wrong.append(error)
        finally:
            runners[0].stop("played")

    def begin(runner: Runner) -> None:
        runners.append(runner)
        playing.start()

    playing = threading.Thread(target=play)
    ended = run_here(read(file), spark, heard, on_runner=begin)
    playing.join()
    assert wrong == [], (heard.__dict__, ended)
    check(ended, heard)
    numbers = range(1, ALL + 1)
    assert written(tmp_path / "out") == [(number, 10 * number) for number in numbers]
    assert copied(server.url) == list(numbers)


def check(ended: list[Ended], heard: Heard) -> None:
    assert [(each.state, each.problem) for each in ended] == [("stopped", None)] * 2
    causes = [(query, cause) for query, _, cause in heard.restarts]
    assert any(query == "out" and "Spark lost a Python worker" in cause for query, cause in causes)
    assert [number for query, number, _ in heard.restarts if query == "out"] == [
        *range(1, ended[0].restarts + 1)
    ]
    assert set(heard.back_again) == {"out", "copy"}
    assert {each.query: each.restarts for each in ended} == {
        name: sum(query == name for query, _, _ in heard.restarts) for name in ("out", "copy")
    }
