"""A query that takes the surplus of a worker, under a lease: its runner is killed in a burst."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync
from waiting import until_here

from .test_whole_runs import (  # noqa: F401
    Running,
    kind,
    messages,
    publish,
    server,
    started,
    two_runners,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.slow("tests/spark/test_overflow.py"),
]
WITHIN_S = 480.0
FEW, BURST = 600, 1_800
MARK = 500
ACK_WAIT_S = 30.0
"""Messages that the killed runner was handed, and had not written down, come again after it."""

FILE = """
[pipeline]
name = "surplus"
checkpoint = "checkpoint"
fast_local_checkpoint = true

[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"

[lease]
servers = "{url}"
seconds = "5s"
kind = "{kind}"
bucket = "{bucket}"

[sources.surplus]

[sources.surplus.options]
stream = "NUMBERS"
servers = "{url}"
consumer = "workers"
minPending = "{mark}"
maxOffsetsPerTrigger = 200

[views.numbers]
sql = "SELECT CAST(CAST(data AS string) AS bigint) AS number FROM surplus"

[sinks.taken]
from = "numbers"
format = "jetstream"

[sinks.taken.options]
servers = "{url}"
stream = "TAKEN"
subject = "taken"
delivery = "exactlyOnce"
sinkId = "taken"
"""


@pytest.fixture
def leased(server: str, kind: str, write: Callable[..., Path]) -> Iterator[Path]:  # noqa: F811
    """The file of a pipeline that takes the surplus of a consumer, which is there, as are its streams."""
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")
    bucket = f"surplus-{kind}-{os.getpid()}"
    with sync.connect(server) as connection:
        js = connection.jetstream()
        stream = js.create_stream(name="NUMBERS", subjects=["numbers"])
        stream.create_consumer(
            durable_name="workers",
            ack_policy="explicit",
            ack_wait=ACK_WAIT_S,
            priority_policy="overflow",
            priority_groups=["spill"],
        )
        js.create_stream(name="TAKEN", subjects=["taken", "_sink.TAKEN.>"], allow_atomic=True)
        try:
            yield write(FILE.format(url=server, kind=kind, bucket=bucket, mark=MARK))
        finally:
            for name in [each for each in js.stream_names() if bucket in each]:
                js.delete_stream(name)
            js.delete_stream("NUMBERS")
            js.delete_stream("TAKEN")


class Worker:
    """A worker of the consumer: it gets what the query leaves, and what comes again."""

    def __init__(self, connection: sync.Connection) -> None:
        self._consumer = connection.jetstream().stream("NUMBERS").consumer("workers")
        self.handled: list[int] = []

    def work(self) -> bool:
        """Handle what is there; returns whether nothing is left, with anybody."""
        for message in self._consumer.fetch(100, max_wait=0.5, group="spill"):
            self.handled.append(int(message.payload))
            message.ack_sync()
        info = self._consumer.info()
        return info.num_pending == 0 and info.num_ack_pending == 0


def written(running: Running) -> int:
    return sum(each["rows"] for each in running.events("batch"))


def test_a_burst_whose_surplus_a_standby_takes_over_in_the_middle_is_handled_once_and_whole(
    leased: Path,
    server: str,  # noqa: F811
    started: Callable[..., Running],  # noqa: F811
) -> None:
    with sync.connect(server) as connection:
        publish(connection.jetstream(), 1, FEW)
        first, second = two_runners(leased, started)
        first.until(lambda: written(first), "the surplus of the first messages is not taken")
        before = written(first)
        publish(connection.jetstream(), FEW + 1, FEW + BURST)
        first.until(lambda: written(first) > before, "it takes nothing of the burst")
        os.killpg(first.process.pid, signal.SIGKILL)
        first.process.communicate()
        consumer = connection.jetstream().stream("NUMBERS").consumer("workers")
        assert consumer.info().num_pending > MARK, "the burst was over before its runner was killed"
        second.until(lambda: written(second), "the standby takes nothing")
        second.until(lambda: consumer.info().num_pending < MARK, "the standby leaves a surplus")

        worker = Worker(connection)
        until_here(worker.work, "messages are left", within=WITHIN_S)
        second.process.send_signal(signal.SIGINT)
        assert second.end()[0] == 130
        taken = [row["number"] for row in messages(server, "TAKEN", "taken")]
    both = sorted([*taken, *worker.handled])
    assert len(taken) >= BURST - MARK
    assert both == list(range(1, FEW + BURST + 1)), "some are missing, or were handled again"
