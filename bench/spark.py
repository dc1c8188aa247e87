"""The Spark source: rows a second, and processor time a row, of the server, the Python worker and the JVM.

One local session of two cores for all parts; the servers run beside it. ``PARTS`` lists what is measured:
a part is a function of the session and the rounds, and makes a table and claims of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cpu
import peers
import report
import spark_decoding
from contenders import HEADRACE, NATS_DEFAULT, STREAM, Contender, running
from rawsocket import RawConnection
from waiting import until_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

ROWS = 300_000
MANY_ROWS = 1_000_000  # so that what a query costs once, about a tenth of a second, is a small part
NATSPY_ROWS = 60_000
QUEUE_ROWS = 200_000
PAYLOAD_BYTES = 100
SUBJECTS = 1_000
WINDOW = 16_000
SMALL_BATCHES = 12
WARM_UPS = 3  # rounds before the first that counts


@dataclass(frozen=True)
class Cost:
    """What one run took: rows a second, and µs of processor time a row."""

    rate: float
    server: float
    python: float
    jvm: float


class Bench:
    """The session, and the processes around it."""

    def __init__(self, session: SparkSession, rounds: int) -> None:
        self.session = session
        self.rounds = rounds

    @property
    def jvm_pid(self) -> int:
        return int(self.session._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]

    def python_pids(self) -> list[int]:
        """The Python processes of the JVM: daemons, workers, the processes of streaming queries."""
        return descendants(self.jvm_pid)

    def source(self, server: peers.ServerProcess, **options: Any) -> DataFrame:
        reader = self.session.read.format("jetstream").options(servers=server.url, **options)
        return reader.load(STREAM)

    def run(self, server: peers.ServerProcess, df: DataFrame, rows: int) -> Cost:
        """Write a frame of so many rows nowhere."""
        server_pid, jvm_pid = server.process.pid, self.jvm_pid
        pythons = {pid: cpu.of_process(pid) for pid in self.python_pids()}
        before = cpu.of_process(server_pid), cpu.of_process(jvm_pid)
        started = time.perf_counter()
        df.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started
        spent = sum(cpu.of_process(p) - pythons.get(p, 0.0) for p in self.python_pids())
        return Cost(
            rows / seconds,
            1e6 * (cpu.of_process(server_pid) - before[0]) / rows,
            1e6 * spent / rows,
            1e6 * (cpu.of_process(jvm_pid) - before[1]) / rows,
        )


def descendants(pid: int) -> list[int]:
    """The processes below one (Linux)."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


@contextmanager
def spark_session(area: str) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # workers import our sources from here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2]")
            .appName("headrace benchmark")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.warehouse.dir", area)
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def filled(contender: Contender, rows: int, **config: Any) -> Iterator[peers.ServerProcess]:
    """A server whose stream has so many messages of 100 bytes, on a thousand subjects."""
    document = {"name": STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}
    with running(contender) as server, RawConnection(server.host, server.port) as admin:
        admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", {**document, **config})
        subject: Callable[[int], str] = lambda n: f"bench.{n % SUBJECTS}"  # noqa: E731
        admin.publish_acked(rows, WINDOW, PAYLOAD_BYTES, subject)
        yield server


def cost_row(name: str, costs: list[Cost]) -> list[str]:
    """The medians of some runs, as ``COST_HEAD`` names them."""
    rates = [each.rate for each in costs]
    middle = [
        report.median([getattr(each, part) for each in costs])
        for part in ("server", "python", "jvm")
    ]
    return [
        name,
        f"{report.median(rates):,.0f}",
        report.spread(rates),
        *(f"{each:.2f}" for each in middle),
    ]


COST_HEAD = ("read", "rows/s", "range", "server µs/row", "Python µs/row", "JVM µs/row")


def rate_of(costs: list[Cost]) -> float:
    return report.median([each.rate for each in costs])


def reading(bench: Bench) -> None:
    """From both servers, against a source built on nats-py on the same server."""
    from natspy_source import NatsPySource

    bench.session.dataSource.register(NatsPySource)
    contenders = (HEADRACE, NATS_DEFAULT)
    ours: dict[str, list[Cost]] = {each.name: [] for each in contenders}
    theirs: dict[str, list[Cost]] = {each.name: [] for each in contenders}
    with (
        ExitStack() as stack
    ):  # one round after the other: what changes with time changes for all of them
        servers = {each.name: stack.enter_context(filled(each, ROWS)) for each in contenders}
        for number in range(WARM_UPS + bench.rounds):
            for name, server in servers.items():
                cost = bench.run(server, bench.source(server, maxTasks=1), ROWS)
                if number >= WARM_UPS:  # the JVM has compiled
                    ours[name].append(cost)
                    natspy = bench.session.read.format("natspy").options(
                        url=server.url, stream=STREAM, messages=NATSPY_ROWS
                    )
                    theirs[name].append(bench.run(server, natspy.load(), NATSPY_ROWS))
    rows = []
    for name in servers:
        rows += [
            cost_row(f"headrace, from {name}", ours[name]),
            cost_row(f"nats-py, from {name}", theirs[name]),
        ]
        report.claim(
            f"Spark source from {name}, against nats-py",
            f"{rate_of(ours[name]):,.0f} and {rate_of(theirs[name]):,.0f} rows/s",
            rate_of(ours[name]) / rate_of(theirs[name]),
            at_least=8,
        )
        python = report.median([each.python for each in ours[name]])
        report.claim(
            f"Spark source from {name}: Python time", f"{ROWS:,} rows", python, at_most=4, unit="µs"
        )
    mine, other = ours[HEADRACE.name], ours[NATS_DEFAULT.name]
    spent = report.median([each.server for each in mine])
    report.claim("Spark source: our broker's time", f"{ROWS:,} rows", spent, at_most=2, unit="µs")
    report.claim(
        "Spark source from our broker, against from nats-server",
        f"{rate_of(mine):,.0f} and {rate_of(other):,.0f} rows/s",
        rate_of(mine) / rate_of(other),
        at_least=1,
    )
    report.table(f"Spark source to noop, {PAYLOAD_BYTES} B, one task", COST_HEAD, rows)


def tasks(bench: Bench) -> None:
    """One task and two, and all columns and ``data`` alone, on our broker."""
    kinds: dict[str, Callable[[peers.ServerProcess], DataFrame]] = {
        "one task": lambda server: bench.source(server, maxTasks=1),
        "two tasks": lambda server: bench.source(server, maxTasks=2),
        "data alone": lambda server: (
            bench.session.read.format("jetstream")
            .schema("data binary")
            .options(servers=server.url, maxTasks=1)
            .load(STREAM)
        ),
        "by partition, one task": lambda server: bench.source(
            server, splitBy="partition", partitions=8, partitionBy="hash=2", maxTasks=1
        ),
        "by partition, two tasks": lambda server: bench.source(
            server, splitBy="partition", partitions=8, partitionBy="hash=2", maxTasks=2
        ),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in kinds}
    with filled(HEADRACE, MANY_ROWS) as server:
        bench.run(server, kinds["one task"](server), MANY_ROWS)
        for _ in range(bench.rounds):
            for name, make in kinds.items():
                costs[name].append(bench.run(server, make(server), MANY_ROWS))
    report.table(
        "How a read is split, and how much of it is wanted",
        COST_HEAD,
        [cost_row(name, each) for name, each in costs.items()],
    )

    def spent(name: str) -> float:
        return report.median([each.server + each.python + each.jvm for each in costs[name]])

    report.claim(
        "Spark source: data alone, against all columns",
        f"{rate_of(costs['data alone']):,.0f} and {rate_of(costs['one task']):,.0f} rows/s",
        rate_of(costs["data alone"]) / rate_of(costs["one task"]),
        at_least=1.4,
    )

    def client(name: str) -> float:
        return report.median([each.python + each.jvm for each in costs[name]])

    report.claim(
        "Spark source: processor time of Python and the JVM, data alone, against all columns",
        f"{client('data alone'):.2f} and {client('one task'):.2f} µs a row",
        client("one task") / client("data alone"),
        at_least=1.4,
    )
    report.claim(
        "Spark source: processor time of two tasks, against one",
        f"{spent('two tasks'):.2f} and {spent('one task'):.2f} µs/row",
        spent("two tasks") / spent("one task"),
        at_most=1.25,  # with four cores it is then 1.6 times as fast
    )
    report.claim(
        "Spark source: processor time by partition, against by sequence",
        f"{spent('by partition, two tasks'):.2f} and {spent('two tasks'):.2f} µs/row",
        spent("by partition, two tasks") / spent("two tasks"),
        at_most=1.25,
    )


def queues(bench: Bench) -> None:
    """Work queues, where no consumer may be made, with direct gets and without."""
    rows = []
    for contender in (HEADRACE, NATS_DEFAULT):
        for direct in (True, False):
            wanted = {"retention": "workqueue", "allow_direct": direct}
            with filled(contender, QUEUE_ROWS, **wanted) as server:
                bench.run(server, bench.source(server, maxTasks=1), QUEUE_ROWS)
                costs = [
                    bench.run(server, bench.source(server, maxTasks=1), QUEUE_ROWS)
                    for _ in range(bench.rounds)
                ]
            rows.append(cost_row(f"{contender.name}, allow_direct {direct}", costs))
            if contender is HEADRACE:
                report.claim(
                    f"Spark source: a work queue {'with' if direct else 'without'} allow_direct",
                    "our broker",
                    rate_of(costs),
                    at_least=60_000,
                    unit="/s",
                )
    report.table("Work queues", COST_HEAD, rows)


def small_batches(bench: Bench) -> None:
    """Micro-batches of one row, against Spark's rate source and a Python source that does nothing.

    One round after the other: what the machine does beside changes all of them alike. A first round is not
    counted, in which Spark compiles.
    """
    from nothing_source import NothingSource

    bench.session.dataSource.register(NothingSource)
    ours: list[dict[str, int]] = []
    nothing: list[dict[str, int]] = []
    rate: list[dict[str, int]] = []
    for number in range(bench.rounds + 1):
        if number == 1:
            for counted in (nothing, ours, rate):
                counted.clear()
        nothing += _batches(_stream(bench, "nothing").load())
        with filled(HEADRACE, SMALL_BATCHES + 1) as server:
            options = {"servers": server.url, "maxOffsetsPerTrigger": "1"}
            ours += _batches(_stream(bench, "jetstream").options(**options).load(STREAM))
        options = {"rowsPerBatch": "1", "numPartitions": "1"}
        rate += _batches(_stream(bench, "rate-micro-batch").options(**options).load())
    report.table(
        "A micro-batch of one row, ms (median)",
        ("source", "trigger", "getBatch", "latestOffset", "addBatch", "walCommit", "commitOffsets"),
        [
            [
                name,
                *(
                    f"{report.median([each.get(part, 0) for each in durations]):.0f}"
                    for part in (
                        "triggerExecution", "getBatch", "latestOffset",
                        "addBatch", "walCommit", "commitOffsets",
                    )
                ),
            ]
            for name, durations in (
                ("jetstream", ours),
                ("nothing, in Python", nothing),
                ("rate", rate),
            )
        ],
    )  # fmt: skip
    mine, least, theirs = (
        report.median([each["triggerExecution"] for each in durations])
        for durations in (ours, nothing, rate)
    )
    report.claim(
        "Spark source: a batch of one row, against a Python source with a task that does nothing",
        f"{mine:.0f} and {least:.0f} ms",
        mine / least,
        at_most=1.0,
    )
    report.claim(
        "Spark source: a batch of one row, against the rate source",
        f"{mine:.0f} and {theirs:.0f} ms",
        mine / theirs,
        at_most=1.15,
    )


def _stream(bench: Bench, source: str) -> DataStreamReader:
    """A reader of its own: one that is used again keeps the options of the source before."""
    return bench.session.readStream.format(source)


def _batches(df: DataFrame) -> list[dict[str, int]]:
    """The durations of the batches of a query, the first ones left out."""
    with tempfile.TemporaryDirectory() as area:
        query = df.writeStream.format("noop").option("checkpointLocation", area).start()
        try:
            until_here(lambda: len(_busy(query)) >= SMALL_BATCHES, within=120)
            return [dict(each["durationMs"]) for each in _busy(query)[3:SMALL_BATCHES]]
        finally:
            query.stop()


def _busy(query: Any) -> list[Any]:
    return [each for each in query.recentProgress if each["numInputRows"]]


def idle(bench: Bench) -> None:
    """Requests a second of an idle query, and how long it takes to stop."""
    seconds = 5.0
    stops = []
    with (
        filled(HEADRACE, 10) as server,
        RawConnection(server.host, server.port) as admin,
        tempfile.TemporaryDirectory() as area,
    ):
        calls = 0.0
        for number in range(3):
            df = (
                bench.session.readStream.format("jetstream")
                .options(servers=server.url)
                .load(STREAM)
            )
            query = (
                df.writeStream.format("noop")
                .option("checkpointLocation", f"{area}/{number}")
                .start()
            )
            until_here(lambda query=query: bool(_busy(query)), within=30)  # type: ignore[misc]
            if number == 0:
                before = _api_calls(admin)
                time.sleep(seconds)  # what happens in this time is counted: nothing is waited for
                calls = (_api_calls(admin) - before) / seconds
            started = time.perf_counter()
            query.stop()
            stops.append(time.perf_counter() - started)
    report.table(
        "An idle query",
        ("requests/s of the JetStream API", "stop, s (median of 3)"),
        [[f"{calls:.1f}", f"{report.median(stops):.2f}"]],
    )
    report.claim("Spark source: an idle query", "API requests", calls, at_most=5, unit="/s")
    report.claim("Spark source: stop", "median of 3", report.median(stops), at_most=1, unit="s")


def _api_calls(admin: RawConnection) -> int:
    return int(admin.request("$JS.API.INFO")["api"]["total"])


PARTS: dict[str, Callable[[Bench], None]] = {
    "reading": reading,
    "tasks": tasks,
    "queues": queues,
    "small batches": small_batches,
    "idle": idle,
    "decoding": spark_decoding.decoding,
}


def run(rounds: int, only: list[str]) -> None:
    with tempfile.TemporaryDirectory() as area, spark_session(area) as session:
        bench = Bench(session, rounds)
        for name, part in PARTS.items():
            if not only or any(each in name for each in only):
                part(bench)
