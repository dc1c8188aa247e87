"""Spark with its driver, its Python workers and the broker killed at random moments of two queries.

One writes each row once, the other the latest of each key. ``HEADRACE_SPARK_KILLS`` says how many are killed,
``HEADRACE_SPARK_SEED`` which. ``make spark-kills`` does 15. The suite kills a writer of the latest of a key
and its server (``test_keyed_kills.py``), and a worker and a server of a pipeline
(``tests/spark/test_pipeline_restarts.py``); ``make standby`` kills runners.
"""

from __future__ import annotations

import contextlib
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
from children import end_with_us
from waiting import until_here

from ..conftest import Feed

KILLS = int(os.environ.get("HEADRACE_SPARK_KILLS", "0"))
SEED = int(os.environ.get("HEADRACE_SPARK_SEED", "0"))
EACH = 3000  # rows between two kills
BATCH = 1500 if SEED % 2 else 1000  # rows of a micro-batch; the driver reads the smaller ones
LOG_SHOWN = 5000
WITHIN_S = 300.0  # a JVM may take minutes to start on a busy machine
TASK_WORKER = b"\0pyspark.daemon\0pyspark.worker\0"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(2 * WITHIN_S * (KILLS + 2)),
    pytest.mark.skipif(KILLS == 0, reason="HEADRACE_SPARK_KILLS is not set: make spark-kills"),
]


class Drivers:
    """Starts the driver, and again whenever it is gone before its end. What Spark says goes to a file."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        self._command = [sys.executable, str(Path(__file__).with_name("query.py")), *arguments]
        self.started = 0
        self._ticks: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        self.started += 1
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                start_new_session=True,
                preexec_fn=end_with_us,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def kill(self) -> None:
        """The driver with its JVM; its Python workers lose their sockets."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.last_words()

    def last_words(self) -> str:
        """What it printed. Its Java holds the same pipe, and ends after it: one that does not is named."""
        try:
            return self.process.communicate(timeout=WITHIN_S)[0].decode()
        except subprocess.TimeoutExpired:
            listed = subprocess.run(
                ["ps", "-o", "pid,stat,wchan,etime,args", "-g", str(self.process.pid)],
                capture_output=True,
                text=True,
                check=False,
            )
            left = "\n".join(line[:200] for line in listed.stdout.splitlines())
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError(
                f"the driver has ended with {self.process.poll()}, and {WITHIN_S:g} s later its processes "
                f"have not:\n{left}"
            ) from None

    def kill_worker(self, rng: random.Random) -> bool:
        """One of the Python workers that are at work: that have used the processor since the last call."""
        before, self._ticks = self._ticks, self._task_workers()
        busy = [pid for pid, ticks in self._ticks.items() if ticks > before.get(pid, ticks)]
        if not busy:
            return False
        os.kill(rng.choice(sorted(busy)), signal.SIGKILL)
        self._ticks = {}
        return True

    def _task_workers(self) -> dict[int, int]:
        """The workers that run tasks, and how much processor time each has used.

        Each is a child of a daemon with the same command. Planning, and the commit of a batch, have daemons
        and workers of their own, with other commands.
        """
        ticks, parents = {}, {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rsplit(")", 1)[1].split()
                command = status.with_name("cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) != self.process.pid or not command.endswith(TASK_WORKER):
                continue
            pid = int(status.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
        return {pid: used for pid, used in ticks.items() if parents[pid] in ticks}

    def keep_going(self) -> bool:
        """Start it again if its query died; whether it has come to its end."""
        status = self.process.poll()
        if status == 0:
            return True
        if status is not None:
            said = self.last_words()
            assert status == 1, f"the driver ended with {status}: {said}"
            assert "runs again with other rows" not in said, said
            self.start()
        return False


def shutting_down(drivers: Drivers) -> None:
    if drivers.process.poll() is None:
        drivers.kill()


def kill_one_at_work(drivers: Drivers, target: Feed, rng: random.Random) -> None:
    """Kill workers until the query dies of it: the one before had just ended its task."""
    process, end = drivers.process, 0

    def there() -> int:
        return target.control.stream_info().state.messages

    def one_is_killed() -> bool:
        return process.poll() is not None or drivers.kill_worker(rng)

    def it_died_or_goes_on() -> bool:
        return process.poll() is not None or there() >= end

    while process.poll() is None:
        until_here(one_is_killed, "nobody works", within=WITHIN_S)
        end = there() + 2 * BATCH
        until_here(it_died_or_goes_on, "it neither dies nor goes on", within=WITHIN_S)
    assert process.returncode == 1, "the query ended before a worker was killed at work"


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
    rows = EACH * (KILLS + 2)
    source.publish_numbers(1, rows)
    source.link.close()
    log, checkpoint = tmp_path / "spark.log", str(tmp_path / "checkpoint")
    drivers = Drivers(log, server.url, source.name, target.name, checkpoint)
    request.addfinalizer(lambda: shutting_down(drivers))
    kinds = ["worker", "driver", "broker"]
    done: Counter[str] = Counter()
    for number in range(KILLS):
        kind = kinds[number] if number < len(kinds) else rng.choice(kinds)
        wanted = EACH * number + rng.randrange(1, EACH)
        started = drivers.started

        def is_there(wanted: int = wanted) -> bool:
            drivers.keep_going()
            return target.control.stream_info().state.messages >= wanted

        try:
            until_here(is_there, f"{wanted} rows are not there", within=WITHIN_S, every=0.02)
        except AssertionError as error:
            error.add_note(
                f"since the last kill the driver was started {drivers.started - started} times"
            )
            error.add_note(log.read_text(errors="replace")[-LOG_SHOWN:])
            raise
        if kind == "driver":
            drivers.kill()
            drivers.start()
        elif kind == "worker":
            kill_one_at_work(drivers, target, rng)
        else:
            server.kill()
            server.start_again()
            target.link.close()
            target.control.link = target.link = target.connect()
        done[kind] += 1
        print(
            f"\n{number + 1} of {KILLS}: {kind} killed at {wanted} rows, driver {drivers.started}"
        )
    until_here(drivers.keep_going, "the query does not end", within=WITHIN_S, every=0.1)
    drivers.last_words()
    last = target.control.stream_info().state.last_seq
    space = f"{target.name}.".encode()
    counts: Counter[bytes] = Counter()
    latest: dict[bytes, bytes] = {}
    for at in range(1, last + 1, 5000):
        found = target.stored(range(at, min(at + 5000, last + 1)))
        own = [each for each in found if each.subject.startswith(space)]
        counts.update(each.payload for each in own if each.subject.endswith(b".rows"))
        latest |= {each.subject: each.payload for each in own if b".last." in each.subject}
    of_keys = {
        b"%blast.%d" % (space, number % 50): b"m%d" % number for number in range(1, rows + 1)
    }
    assert latest == of_keys, "each key ends with its last row"
    assert counts == Counter(b"m%d" % number for number in range(1, rows + 1))
    print(f"killed: {dict(done)}; drivers: {drivers.started}")
    assert done["worker"], "a worker is the first that is killed"
    target.link.close()
