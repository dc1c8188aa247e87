"""The latest of each key, exactly once, while a writer and the server are killed in the middle of a batch.

The reduced form of ``make spark-kills`` for the suite: who is killed, and at which value, is fixed. Only
processes of this test are killed: the worker is the one that writes to this test's own server.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import peers
from headrace import sync
from headrace.pipeline.failures.causes import Cause, cause_of
from waiting import until_here

from ..conftest import Feed
from .cutting_proxy import Cut, CuttingProxy, process_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.client import Entry

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(sys.platform != "linux", reason="the writer is found in /proc"),
]

BUCKET = "LAST"
KEYS, ROWS, BATCH, TASK = 20, 1200, 400, 200
WORKER_AT = 10
"""Of the first batch this many values less one are sent when their writer is killed."""
SERVER_AT = 45
"""The answer to this value is lost with the server. Each batch stores 20 or more: it is a later one."""
WITHIN_S = 240.0
STARTS_MAX = 10


@pytest.fixture(params=peers.PLAYED_ON)
def server(request: pytest.FixtureRequest) -> peers.ServerProcess:
    name = "nats_server" if request.param == "nats-server" else "headrace_server"
    made: peers.ServerProcess = request.getfixturevalue(name)()
    return made


def run(spark: SparkSession, source: Feed, sink_url: str, checkpoint: Path) -> Cause | None:
    """Write what is there; why the query died, if it did."""
    reader = spark.readStream.format("jetstream").option("servers", source.url)
    reader = reader.option("maxOffsetsPerTrigger", BATCH).option("minMessagesPerTask", TASK)
    rows = reader.load(source.name)
    rows = rows.selectExpr("sequence", f"CAST(sequence % {KEYS} AS string) AS k")
    writer = rows.writeStream.format("jetstream").option("servers", sink_url)
    writer = writer.options(bucket=BUCKET, key="k", order="sequence")
    writer = writer.options(delivery="exactlyOnce", sinkId="kills")
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        until_here(lambda: not query.isActive, "the query does not end", within=WITHIN_S)
    finally:
        query.stop()
    error = query.exception()
    return cause_of(error) if error is not None else None


def test_the_last_value_of_each_key_is_stored_once_though_writer_and_server_are_killed(
    spark: SparkSession, server: peers.ServerProcess, tmp_path: Path
) -> None:
    source = Feed(server.url)
    source.publish_numbers(1, ROWS)
    source.link.close()
    with sync.connect(server.url) as connection:
        connection.jetstream().create_key_value(BUCKET, history=64)

    def kill_writer(port: int) -> None:
        os.kill(process_at(port), signal.SIGKILL)

    def kill_server(_: int) -> None:
        server.kill()
        server.start_again()

    value = Cut(b"HPUB $KV.%b." % BUCKET.encode(), WORKER_AT, kill_writer)
    answer = Cut(b'{"stream":"KV_%b"' % BUCKET.encode(), SERVER_AT, kill_server)
    died: list[Cause] = []
    with CuttingProxy(server.host, server.port, from_client=value, from_server=answer) as proxy:
        while cause := run(spark, source, proxy.url, tmp_path / "checkpoint"):
            died.append(cause)
            assert cause.kind in ("worker", "away"), cause
            assert len(died) < STARTS_MAX, died
    assert proxy.wrong == []
    assert proxy.done == [value.pattern, answer.pattern]
    assert any(each.is_crash for each in died), died
    check_values(server.url)


def latest(rows: int) -> dict[str, list[int]]:
    """The last row of each key, of each piece of so many rows, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for begin in range(1, ROWS + 1, rows):
        for key, last in {str(each % KEYS): each for each in range(begin, begin + rows)}.items():
            found[key].append(last)
    return found


def check_values(url: str) -> None:
    """Against plain Python: the last row of each key of each batch, in order, and no value twice."""
    of_batches, of_tasks = latest(BATCH), latest(TASK)
    with sync.connect(url) as connection:
        bucket = connection.jetstream().key_value(BUCKET)
        stored = {key: [row_of(each) for each in bucket.history(key)] for key in of_batches}
        keys = bucket.keys()
        values = {key: row_of(bucket.get(key)) for key in keys}
    assert values == {key: rows[-1] for key, rows in of_batches.items()}
    for key, rows in stored.items():
        assert rows == sorted(set(rows)), f"key {key}: {rows}"
        # A task that is done before the other one of its batch has stored its own last row, too.
        assert set(of_batches[key]) <= set(rows) <= set(of_tasks[key]), f"key {key}: {rows}"


def row_of(entry: Entry) -> int:
    return int(json.loads(entry.value)["sequence"])
