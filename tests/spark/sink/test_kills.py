"""Spark with its driver, its Python workers and the broker killed at random moments of a query.

``HEADRACE_SPARK_KILLS`` says how many, ``HEADRACE_SPARK_SEED`` which. ``make spark-kills`` does 15. The suite
kills a runner of a pipeline that writes exactly once (``tests/pipeline/test_whole_runs.py``) and the demo.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import peers
from waiting import until_here

from ..conftest import Feed

KILLS = int(os.environ.get("HEADRACE_SPARK_KILLS", "0"))
SEED = int(os.environ.get("HEADRACE_SPARK_SEED", "0"))
EACH = 3000  # rows between two kills

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 240 * KILLS),
    pytest.mark.skipif(KILLS == 0, reason="HEADRACE_SPARK_KILLS is not set: make spark-kills"),
]


class Drivers:
    """Starts the driver, and again whenever it is gone before its end."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name("query.py")), *arguments]
        self.started = 0
        self.start()

    def start(self) -> None:
        self.started += 1
        self.process = subprocess.Popen(
            self._command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """The driver with its JVM; its Python workers lose their sockets."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def kill_worker(self, rng: random.Random) -> bool:
        """One of the Python workers that run tasks, if there are any."""
        workers = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rsplit(")", 1)[1].split()
                command = status.with_name("cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == self.process.pid and b"pyspark.daemon" in command:
                workers.append(int(status.parent.name))
        if len(workers) < 2:  # the daemon alone
            return False
        os.kill(rng.choice(sorted(workers)[1:]), signal.SIGKILL)
        return True

    def keep_going(self) -> bool:
        """Start it again if its query died; whether it has come to its end."""
        status = self.process.poll()
        if status == 0:
            return True
        if status is not None:
            said = self.process.communicate()[0].decode()
            assert status == 1, f"the driver ended with {status}: {said}"
            assert "runs again with other rows" not in said, said
            self.start()
        return False


def shutting_down(drivers: Drivers) -> None:
    if drivers.process.poll() is None:
        drivers.kill()


def test_each_row_is_stored_once_whatever_is_killed(
    headrace_server: Callable[..., peers.ServerProcess],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    rng = random.Random(SEED)
    server = headrace_server()
    source, target = Feed(server.url), Feed(server.url, allow_atomic=True)
    target.call(
        f"STREAM.UPDATE.{target.name}",
        {
            "name": target.name,
            "subjects": [f"{target.name}.>", f"_sink.{target.name}.>"],
            "allow_atomic": True,
        },
    )
    rows = EACH * (KILLS + 1)
    source.publish_numbers(1, rows)
    source.link.close()
    kinds = ["driver", "broker", "worker"]
    drivers = Drivers(server.url, source.name, target.name, str(tmp_path / "checkpoint"))
    request.addfinalizer(lambda: shutting_down(drivers))
    done: Counter[str] = Counter()
    for number in range(KILLS):
        kind = kinds[number] if number < 2 else rng.choice(kinds)
        wanted = EACH * number + rng.randrange(1, EACH)

        def is_there(wanted: int = wanted) -> bool:
            drivers.keep_going()
            return target.control.stream_info().state.messages >= wanted

        until_here(is_there, f"{wanted} rows are not there", within=180.0, every=0.02)
        if kind == "driver":
            drivers.kill()
            drivers.start()
        elif kind == "worker":
            until_here(
                lambda: drivers.keep_going() or drivers.kill_worker(rng), "no worker", within=180.0
            )
        else:
            server.kill()
            server.start_again()
            target.link.close()
            target.control.link = target.link = target.connect()
        done[kind] += 1
    until_here(drivers.keep_going, "the query does not end", within=180.0, every=0.1)
    drivers.process.communicate()
    last = target.control.stream_info().state.last_seq
    space = f"{target.name}.".encode()
    counts: Counter[bytes] = Counter()
    for at in range(1, last + 1, 5000):
        found = target.stored(range(at, min(at + 5000, last + 1)))
        counts.update(each.payload for each in found if each.subject.startswith(space))
    assert counts == Counter(b"m%d" % number for number in range(1, rows + 1))
    print(f"killed: {dict(done)}; drivers: {drivers.started}")
    target.link.close()
