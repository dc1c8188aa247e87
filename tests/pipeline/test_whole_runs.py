"""Whole pipelines as people run them, in processes of their own, with Spark."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import peers
from children import end_with_us
from headrace import sync
from headrace.pipeline.checkpoints.checkpoint import checkpoint_of, interrupted
from headrace.pipeline.declaring.reading import read
from waiting import until_here

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
WITHIN_S = 480.0
MESSAGES = 500
TOTAL = 2_000
EXPECTED = ("the event loop stood still", "files of a batch that did not come to its end")
"""What a standby may say: a busy machine lets no loop run in time, and a runner that is killed
in the middle of a batch leaves files, which are removed."""
_leases = itertools.count(1)
EVERY_LEASE = bool(os.environ.get("HEADRACE_EVERY_LEASE"))
# Each server, each kind of lease and each way to lose a runner once; ``make standby`` plays all of them.
PLAYED = {
    "a_warm_standby": {("headrace", "pinned")},
    "a_frozen_runner": {("nats-server", "bucket")},
    "a_burst": {("headrace", "bucket")},
}

FILE = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"
fast_local_checkpoint = true

[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"

[lease]
servers = "{url}"
seconds = "5s"
kind = "{kind}"
bucket = "{bucket}"

[sources.orders]
options = {{ stream = "{stream}", servers = "{url}", durable = "orders", maxOffsetsPerTrigger = 500 }}

[views.numbers]
sql = "SELECT sequence, CAST(CAST(data AS string) AS bigint) AS number FROM orders"

[[views.numbers.expect]]
name = "no multiple of ten"
check = "number % 10 <> 0"
otherwise = "quarantine"
to = "rejected"

[views.tenfold]
python = "views.py:tenfold"

[sinks.out]
from = "tenfold"
format = "parquet"
options = {{ path = "out" }}

[sinks.rejected]
format = "jetstream"

[sinks.rejected.options]
servers = "{url}"
stream = "REJECTED"
subject = "rejected"
delivery = "exactlyOnce"
sinkId = "rejected"
"""

VIEWS = """
import pyarrow as pa
import pyarrow.compute as pc

FACTOR = 10


def tenfold(numbers):
    return numbers.mapInArrow(multiplied, "sequence bigint, number bigint")


def multiplied(batches):
    for batch in batches:
        number = pc.multiply(batch.column("number"), FACTOR)
        yield pa.RecordBatch.from_arrays([batch.column("sequence"), number], ["sequence", "number"])
"""


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest) -> str:
    """The address of either server."""
    if request.param == "headrace":
        return str(request.getfixturevalue("url_of_headrace"))
    found: peers.ServerProcess = request.getfixturevalue("reference_server")
    return found.url


@pytest.fixture
def big_stream(server: str) -> Iterator[str]:
    with sync.connect(server) as connection:
        js = connection.jetstream()
        js.create_stream(name="NUMBERS", subjects=["numbers"])
        publish(js, 1, MESSAGES)
        subjects = ["rejected", "_sink.REJECTED.>"]
        js.create_stream(name="REJECTED", subjects=subjects, allow_atomic=True)
        yield "NUMBERS"
        js.delete_stream("NUMBERS")
        js.delete_stream("REJECTED")


def publish(js: sync.JetStream, first: int, last: int) -> None:
    with js.publisher() as publisher:
        for number in range(first, last + 1):
            publisher.send("numbers", b"%d" % number)


class Running:
    """``headrace pipeline <verb> FILE`` and the lines it prints."""

    def __init__(self, verb: str, file: Path, *flags: str) -> None:
        self.lines = file.with_name(f"{verb}-{len(list(file.parent.glob('*.jsonl')))}.jsonl")
        with self.lines.open("w") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "pipeline", verb, str(file), *flags],
                stdout=lines,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=end_with_us,
            )

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        found = [
            json.loads(line)
            for line in self.lines.read_text().splitlines(True)
            if line.endswith("\n")
        ]
        return [each for each in found if kind in ("", each["event"])]

    def until(self, found: Callable[[], object], what: str) -> None:
        def is_so() -> object:
            assert self.process.poll() is None, self.process.communicate()
            return found()

        until_here(is_so, what, within=WITHIN_S)

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, errors


@pytest.fixture
def started() -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def start(verb: str, file: Path, *flags: str) -> Running:
        made.append(Running(verb, file, *flags))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.communicate()


def rows(folder: Path) -> list[tuple[int, int]]:
    """What readers of a file sink see: the files its log names."""
    files: set[str] = set()
    for log in (folder / "_spark_metadata").glob("[0-9]*"):
        files |= {json.loads(line)["path"] for line in log.read_text().splitlines()[1:]}
    found: list[tuple[int, int]] = []
    for file in files:
        table = pq.ParquetFile(file.removeprefix("file://")).read()
        found += zip(table["sequence"].to_pylist(), table["number"].to_pylist(), strict=True)
    return sorted(found)


def messages(url: str, stream: str, subject: str) -> list[dict[str, Any]]:
    """What a stream has under a subject, in its order."""
    with sync.connect(url) as connection:
        found = connection.jetstream().stream(stream)
        total = found.info(subjects=subject).state.subjects[subject]
        consumer = found.ordered_consumer(filter_subjects=[subject])
        return [json.loads(message.payload) for message in consumer.fetch(total, max_wait=30)]


def at_the_end(running: Running, sequence: int = MESSAGES) -> bool:
    """Whether both queries have read up to a sequence."""
    ends = {each["query"]: json.loads(each["ends"][0])["seq"] for each in running.events("batch")}
    return ends == {"out": sequence, "rejected": sequence}


def is_ready(running: Running) -> bool:
    """Whether a runner stands by, and could take over."""
    told = running.events("standby")
    assert not any(each["problems"] for each in told), told
    return bool(told) and told[-1]["ready"]


def two_runners(file: Path, started: Callable[..., Running]) -> tuple[Running, Running]:
    """One that is active and one that stands by, ready."""
    first = started("run", file)
    first.until(lambda: first.events("active"), "it does not get the lease")
    second = started("run", file)
    second.until(lambda: is_ready(second), "it does not get ready")
    return first, second


def is_played(test: str, server: str, kind: str) -> bool:
    """Whether the everyday suite plays a test on a server under a kind of lease."""
    (pairs,) = [pairs for name, pairs in PLAYED.items() if test.startswith(f"test_{name}")]
    return EVERY_LEASE or (server, kind) in pairs


@pytest.fixture(params=["bucket", "pinned"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of lease."""
    chosen: str = request.param
    on = request.node.callspec.params["server"]
    if not is_played(request.node.originalname, on, chosen):
        pytest.skip("each lease and server is played once here: make standby plays all")
    return chosen


@pytest.fixture
def leased(kind: str, write: Callable[..., Path], server: str, big_stream: str) -> Iterator[Path]:
    """The file of a pipeline under each kind of lease. Streams of pinned leases have the same subjects, so
    each goes with its test."""
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")
    write(VIEWS, "views.py")
    bucket = f"leases-{kind}-{os.getpid()}-{next(_leases)}"
    yield write(FILE.format(stream=big_stream, url=server, kind=kind, bucket=bucket))
    with sync.connect(server) as connection:
        js = connection.jetstream()
        for name in [each for each in js.stream_names() if bucket in each]:
            js.delete_stream(name)


@pytest.mark.slow("tests/pipeline/test_lease.py")
def test_a_warm_standby_goes_on_where_a_killed_runner_was_and_ctrl_c_finishes_the_running_batch(
    leased: Path, server: str, started: Callable[..., Running]
) -> None:
    file, url = leased, server
    folder = file.parent
    first, second = two_runners(file, started)
    first.until(lambda: at_the_end(first), "it does not get to the end")
    assert not second.events("active")
    with sync.connect(url) as connection:
        publish(connection.jetstream(), MESSAGES + 1, TOTAL)
    before = len(first.events("batch"))
    first.until(lambda: len(first.events("batch")) > before, "it does not see the new messages")
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.communicate()

    second.until(lambda: at_the_end(second, TOTAL), "the standby did not take over")
    assert not second.events("ended"), "it fails where the other was"
    tokens = [each.events("active")[0]["token"] for each in (first, second)]
    assert tokens[0] < tokens[1]
    second.process.send_signal(signal.SIGINT)
    code, said = second.end()
    unexpected = [each for each in said.splitlines() if not any(map(each.__contains__, EXPECTED))]
    assert (code, unexpected) == (130, [])
    assert [each["state"] for each in second.events("ended")] == ["stopped", "stopped"]

    check_results(folder, url)
    check_status(file)


@pytest.mark.slow("tests/pipeline/test_lease.py")
def test_a_frozen_runner_that_wakes_when_its_standby_is_at_work_writes_nothing_and_stands_by(
    leased: Path, server: str, started: Callable[..., Running]
) -> None:
    first, second = two_runners(leased, started)
    first.until(lambda: at_the_end(first), "it does not get to the end")
    with sync.connect(server) as connection:
        publish(connection.jetstream(), MESSAGES + 1, TOTAL)
    before = len(first.events("batch"))
    first.until(lambda: len(first.events("batch")) > before, "it does not see the new messages")
    frozen = [first.process.pid, *below(first.process.pid)]
    for each in frozen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGSTOP)
    until_here(lambda: second.events("active"), "the standby did not take over", within=WITHIN_S)
    second.until(lambda: second.events("batch"), "the standby has no batch")
    for each in frozen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGCONT)
    second.until(lambda: at_the_end(second, TOTAL), "the standby did not get to the end")
    first.until(lambda: first.events("standby"), "who was frozen does not stand by")
    for running in (first, second):
        running.process.send_signal(signal.SIGINT)
        running.end()
    check_results(leased.parent, server)


def check_results(folder: Path, url: str) -> None:
    """Each row is there once."""
    numbers = range(1, TOTAL + 1)
    assert rows(folder / "out") == [(n, 10 * n) for n in numbers if n % 10]
    rejected = messages(url, "REJECTED", "rejected")
    assert [row["number"] for row in rejected] == [n for n in numbers if n % 10 == 0]
    assert {tuple(row["failed"]) for row in rejected} == {("no multiple of ten",)}


def check_status(file: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "headrace", "pipeline", "status", "--json", str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    out, rejected = json.loads(told.stdout)
    assert out["waiting"] == rejected["waiting"] == 0
    assert [each["durable"] for each in (*out["sources"], *rejected["sources"])] == [0, 0]
    missed = out["finished_batch"] + 1 - out["batches"]
    # The kill may have come between the end of batches and their being counted. Those of the first half were.
    assert 0 <= missed <= 3
    seen = out["expectations"]["numbers"]
    assert TOTAL - 500 * missed <= seen["rows"] <= TOTAL
    # Every tenth row fails; each batch that was not counted makes less than a row's difference.
    assert abs(10 * seen["failed"]["no multiple of ten"] - seen["rows"]) <= 9 * missed


SLOW_FILE = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"
fast_local_checkpoint = true

[spark.conf]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"

[sources.orders]
options = {{ stream = "{stream}", servers = "{url}", maxOffsetsPerTrigger = 5 }}

[views.numbers]
sql = "SELECT sequence, CAST(CAST(data AS string) AS bigint) AS number FROM orders"

[views.held]
python = "views.py:held"

[sinks.out]
from = "held"
format = "parquet"
options = {{ path = "out" }}
"""

HELD = """
import os
import time
from pathlib import Path

HERE = Path({here!r})


def held(numbers):
    return numbers.mapInArrow(passed_on, "sequence bigint, number bigint")


def passed_on(batches):
    (HERE / "in a batch").write_text(str(os.getpid()))
    while not (HERE / "go on").exists():
        time.sleep(0.02)
    yield from batches
"""


def below(process: int) -> dict[int, str]:
    """The processes that a process has started, and theirs: number and command."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,stat=,comm="], capture_output=True, text=True, check=True
    )
    children: dict[int, dict[int, str]] = {}
    for line in listed.stdout.splitlines():
        number, parent, state, command = line.split(None, 3)
        if not state.startswith("Z"):
            children.setdefault(int(parent), {})[int(number)] = command
    found: dict[int, str] = {}
    waiting = [process]
    while waiting:
        mine = children.get(waiting.pop(), {})
        found |= mine
        waiting += mine
    return found


def are_gone(processes: dict[int, str]) -> bool:
    listed = subprocess.run(["ps", "-eo", "pid=,stat="], capture_output=True, text=True, check=True)
    alive = {int(n) for n, state in map(str.split, listed.stdout.splitlines()) if state[0] != "Z"}
    return not alive & set(processes)


@pytest.mark.slow("tests/pipeline/test_lease.py")
def test_a_signal_to_all_processes_of_a_runner_lets_the_batch_end_and_none_outlives_the_runner(
    write: Callable[..., Path], url: str, stream: str, started: Callable[..., Running]
) -> None:
    if not peers.java_is_there():
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")
    file = write(SLOW_FILE.format(stream=stream, url=url))
    folder = file.parent
    write(HELD.format(here=str(folder)), "views.py")

    running = started("run", file)
    running.until((folder / "in a batch").exists, "its batch does not begin")
    processes = below(running.process.pid)
    worker = int((folder / "in a batch").read_text())
    assert worker in processes
    assert "java" in processes.values()
    os.killpg(running.process.pid, signal.SIGTERM)
    for each in processes:  # as systemd does by default, and groups of their own do not help
        with contextlib.suppress(ProcessLookupError):  # one that Java had started for a moment
            os.kill(each, signal.SIGTERM)
    running.until(lambda: running.events("stopping"), "it does not hear of the signal")
    (folder / "go on").touch()
    assert running.end() == (0, "")
    assert [each["batch"] for each in running.events("batch")] == [0]
    assert [each["state"] for each in running.events("ended")] == ["stopped"]
    assert [sequence for sequence, _ in rows(folder / "out")] == [1, 2, 3, 4, 5]
    generation = checkpoint_of(read(file), "out").current()
    assert interrupted(generation) is None, "the next batch was begun, and cut off"
    assert not Path(f"{generation.path}.ending").exists()
    until_here(lambda: are_gone(processes), "processes outlive the runner", within=30)

    (folder / "go on").unlink()
    (folder / "in a batch").unlink()
    running = started("run", file)
    running.until((folder / "in a batch").exists, "its batch does not begin")
    processes = below(running.process.pid)
    running.process.kill()
    running.end()
    until_here(lambda: are_gone(processes), "processes outlive a killed runner", within=30)
