"""A Spark query from a stream to a stream: how fast a sink with a key is beside one without.

``python bench/keyed.py [MESSAGES] [ROUNDS]``: rows a second and processor time of the server, of the Python
workers and of Java, medians of the rounds, in which all take turns, on our broker and on nats-server; for few
keys with many rows each, and for a key for each row, over the values of a batch before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
# Tests have a folder that is named as a file beside this one.
sys.path[0] = str(HERE.parent / "tests")

import peers  # noqa: E402
from spark.conftest import Feed  # noqa: E402

sys.path.append(str(HERE))

import cpu  # noqa: E402

KEYS: Final = 1000
KINDS: Final = ("own", "few", "plain")


class Took(NamedTuple):
    """What a batch took: seconds, and microseconds of processor time a row of each."""

    seconds: float
    server: float
    workers: float
    java: float

    @property
    def work(self) -> float:
        return self.server + self.workers + self.java


def main(messages: int, rounds: int) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    for name, start in (
        ("headrace", peers.start_headrace),
        ("nats-server", peers.start_nats_server),
    ):
        with tempfile.TemporaryDirectory() as folder:
            server = start(Path(folder))
            try:
                _measure(spark, name, server, messages, rounds)
            finally:
                server.stop()
    spark.stop()


def _measure(
    spark: Any, name: str, server: peers.ServerProcess, messages: int, rounds: int
) -> None:
    source = Feed(server.url)
    source.publish(["a"] * messages, lambda index: b'{"n":%d,"text":"%b"}' % (index, b"x" * 80))
    target = Feed(server.url, allow_direct=True, max_msgs_per_subject=1, storage="memory")
    for feed in (source, target):  # they would not answer the server's pings
        feed.link.close()
    rows = spark.read.format("jetstream").options(servers=server.url, minMessagesPerTask=1)
    rows = rows.load(source.name)
    rows = rows.selectExpr("sequence", "data", f"sequence % {KEYS} AS few", "sequence AS own")
    found: dict[str, list[Took]] = {kind: [] for kind in KINDS}
    for number, kind in itertools.product(range(rounds + 1), KINDS):
        took = _write(spark, rows, server, target.name, kind, messages)
        if number:  # there are no values before the first one
            found[kind].append(took)
    middle = {kind: Took(*map(median, zip(*took, strict=True))) for kind, took in found.items()}
    plain = middle["plain"]
    for kind, each in middle.items():
        print(
            f"{name}, {kind}: {messages / each.seconds:,.0f} rows/s ({plain.seconds / each.seconds:.2f}); "
            f"processor µs a row: server {each.server:.1f}, workers {each.workers:.1f}, "
            f"Java {each.java:.1f}, all {each.work:.1f} ({plain.work / each.work:.2f})",
            flush=True,
        )


def _write(
    spark: Any, rows: Any, server: peers.ServerProcess, target: str, kind: str, count: int
) -> Took:
    column = "own" if kind == "plain" else kind
    options = {"servers": server.url, "subject": f"{target}.{kind}.{{{column}}}"}
    if kind != "plain":
        options["key"] = column
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    begin, before = time.perf_counter(), _times(server.process.pid, java)
    rows.write.format("jetstream").mode("append").options(**options).save(target)
    took, after = time.perf_counter() - begin, _times(server.process.pid, java)
    return Took(
        took, *((now - then) / count * 1e6 for now, then in zip(after, before, strict=True))
    )


def _times(server: int, java: int) -> tuple[float, float, float]:
    """Seconds of processor time: of the server, of the Python workers, of Java."""
    workers = sum(cpu.of_process(pid) for pid in _below(java))
    return cpu.of_process(server), workers, cpu.of_process(java)


def _below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(process.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*(given + [200_000, 3][len(given) :]))
