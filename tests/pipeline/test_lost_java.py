"""A whole run whose Java is killed in a batch: it is begun anew, and the rows are those of Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync

from .test_whole_runs import HELD, Running, below, publish, rows, started  # noqa: F401

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.slow("tests/spark/test_pipeline_restarts.py"),
]
MESSAGES = 60

FILE = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"
fast_local_checkpoint = true
restart = {{ attempts = 20, backoff = "100ms" }}

[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"

[sources.orders]
options = {{ stream = "NUMBERS", servers = "{url}", durable = "orders", maxOffsetsPerTrigger = 20 }}

[views.numbers]
sql = "SELECT sequence, CAST(CAST(data AS string) AS bigint) AS number FROM orders"

[views.held]
python = "views.py:held"

[sinks.out]
from = "held"
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
"""


@pytest.fixture(params=[pytest.param("nats-server", marks=pytest.mark.peer), "headrace"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    if request.param == "nats-server" and not os.environ.get("HEADRACE_EVERY_LEASE"):
        pytest.skip("Java is killed beside one server here: make standby takes the other, too")
    yield from peers.either_running(request.param, tmp_path / "server")


def copied(url: str) -> list[int]:
    with sync.connect(url) as connection:
        stream = connection.jetstream().stream("COPY")
        total = stream.info(subjects="copy").state.subjects["copy"]
        consumer = stream.ordered_consumer(filter_subjects=["copy"])
        return sorted(
            json.loads(each.payload)["number"] for each in consumer.fetch(total, max_wait=30)
        )


def test_a_java_that_is_killed_in_a_batch_is_replaced_and_no_row_is_lost_or_written_twice(
    write: Callable[..., Path],
    server: peers.ServerProcess,
    started: Callable[..., Running],  # noqa: F811
) -> None:
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")
    with sync.connect(server.url) as connection:
        js = connection.jetstream()
        js.create_stream(name="NUMBERS", subjects=["numbers"])
        js.create_stream(name="COPY", subjects=["copy", "_sink.COPY.>"], allow_atomic=True)
        publish(js, 1, MESSAGES)
    file = write(FILE.format(url=server.url))
    folder = file.parent
    write(HELD.format(here=str(folder)), "views.py")

    running = started("run", file)
    running.until((folder / "in a batch").exists, "its batch does not begin")
    (java,) = [n for n, name in below(running.process.pid).items() if name == "java"]
    os.kill(java, signal.SIGKILL)
    running.until(lambda: running.events("restarting"), "it is not begun anew")
    (folder / "go on").touch()

    def is_at_the_end() -> bool:
        ends = {
            each["query"]: json.loads(each["ends"][0])["seq"] for each in running.events("batch")
        }
        return ends == {"out": MESSAGES, "copy": MESSAGES}

    running.until(is_at_the_end, "it goes no further")
    begun = running.events("restarting")  # on a busy machine workers are lost by accident, too
    gone = [each["query"] for each in begun if "Spark's Java has gone" in each["cause"]]
    assert sorted(gone) == ["copy", "out"]
    assert len(running.events("starting")) == 2
    status = subprocess.run(
        [sys.executable, "-m", "headrace", "pipeline", "status", "--json", str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    restarts = {each["query"]: each["restarts"] for each in json.loads(status.stdout)}
    named = [each["query"] for each in begun]
    assert all(restarts[name] >= named.count(name) >= 1 for name in ("out", "copy"))
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == (0, "")
    assert [each["state"] for each in running.events("ended")] == ["stopped", "stopped"]
    assert rows(folder / "out") == [(number, number) for number in range(1, MESSAGES + 1)]
    assert copied(server.url) == [*range(1, MESSAGES + 1)]
