"""A runner that is ended within a batch: nothing of it writes any more when another may have its lease."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers
from children import end_with_us
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.lease import Standby
from waiting import until_here

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.slow("tests/pipeline/test_lease.py"),
]
WITHIN_S = 300.0

FILE = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"
fast_local_checkpoint = true

[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"

[lease]
servers = "{url}"
seconds = "30s"
bucket = "given-back"

[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}

[views.beating]
python = "views.py:beating"

[sinks.out]
from = "beating"
format = "noop"
"""

VIEWS = """
import os
import time


def beating(orders):
    return orders.select("sequence").mapInArrow(beaten, "sequence bigint")


def beaten(batches):
    for batch in batches:
        for _ in range(6_000):
            with open("{beats}", "a") as file:
                file.write(f"{{time.time()}}\\n")
            time.sleep(0.01)
        yield batch
"""


@pytest.fixture
def running(
    write: Callable[..., Path], url: str, stream: str
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")
    file = write(FILE.format(stream=stream, url=url))
    write(VIEWS.format(beats=file.with_name("beats")), "views.py")
    with file.with_name("events").open("w") as events:
        command = [sys.executable, "-m", "headrace", "pipeline", "run", "--json", str(file)]
        with subprocess.Popen(
            command, stdout=events, start_new_session=True, preexec_fn=end_with_us
        ) as runner:
            yield file, runner
            if runner.poll() is None:
                os.killpg(runner.pid, signal.SIGKILL)


def test_no_task_of_a_batch_that_was_cut_off_is_at_work_when_the_lease_is_another_s(
    running: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    file, runner = running
    beats, events = file.with_name("beats"), file.with_name("events")
    until_here(beats.exists, "its batch does not begin", within=WITHIN_S)
    declared = read(file)
    assert declared.lease is not None
    with Standby(declared.lease, declared.name, lambda why: None) as other:
        assert not other.wait(0.01)
        runner.send_signal(signal.SIGTERM)
        until_here(lambda: '"stopping"' in events.read_text(), "it does not stop", within=WITHIN_S)
        runner.send_signal(signal.SIGTERM)  # the second one does not wait for the batch
        assert other.wait(WITHIN_S)
        had = time.time()
    assert runner.wait(WITHIN_S) == 0
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [each["state"] for each in told if each["event"] == "ended"] == ["stopped"]
    assert not [each for each in told if each["event"] == "batch"], "it was not cut off"
    assert float(beats.read_text().splitlines()[-1]) < had
