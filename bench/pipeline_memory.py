"""Whether the memory of a pipeline that runs for long stays as it is: many short batches.

``python bench/pipeline_memory.py [BATCHES] [MESSAGES A BATCH]``: what Java, its Python processes and the
runner take, every twentieth of the way. Java's heap grows to its limit, whatever is in it; so what counts is
what a full collection of the garbage, asked for by jcmd, leaves of it, and what Java takes beside it.
Without a JDK's jcmd it is the least that its own collections leave, which are seldom full.
Ends with status 1 where the last quarter takes more than the second one by over a tenth. The first quarter
does not count: caches fill, and Java compiles.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent / "tests")
sys.path.append(str(HERE))

import peers  # noqa: E402
from headrace import sync  # noqa: E402
from processes import is_java, java_heap_mib, share_mib, with_those_below  # noqa: E402

HEAP_MIB = 700
COLLECTED = re.compile(r"->(\d+)M\(\d+M\)")  # of a line of Java's log of collections
LOOKS = 20
GROWS_MAX = 1.1
LOOK_S = 0.5
BATCH_MAX_S = 5.0

FILE = """
[pipeline]
name = "memory"
checkpoint = "checkpoint"
fast_local_checkpoint = true

[spark.conf]
"spark.driver.memory" = "{heap}m"
"spark.driver.extraJavaOptions" = "-Xlog:gc:file={log}"

[sources.numbers]
options = {{ stream = "NUMBERS", servers = "{url}", durable = "memory", maxOffsetsPerTrigger = {rows} }}

[views.tenfold]
python = "views.py:tenfold"

[sinks.out]
from = "tenfold"
format = "jetstream"
options = {{ stream = "OUT", servers = "{url}", subject = "out" }}

[sinks.seen]
from = "numbers"
format = "noop"
"""

VIEWS = """
def tenfold(numbers):
    return numbers.select("data").mapInArrow(passed, "data binary")


def passed(batches):
    yield from batches
"""


class Taken(NamedTuple):
    """Mebibytes that are resident; of the heap, those in use after a collection."""

    batches: int
    heap: float
    java: float  # beside the heap
    python: float
    runner: float


def main(batches: int, rows: int) -> int:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        server = peers.start_headrace(folder / "broker", flags=["--sync", "os"])
        try:
            found = _measure(folder, server.url, batches, rows)
        finally:
            server.stop()
    second, last = _quarter(found, batches, 2), _quarter(found, batches, 4)
    print(
        f"second quarter to last: {', '.join(_change(a, b) for a, b in zip(second, last, strict=True))}"
    )
    return int(any(b > a * GROWS_MAX for a, b in zip(second, last, strict=True)))


def _measure(folder: Path, url: str, batches: int, rows: int) -> list[Taken]:
    _fill(url, batches * rows)  # two queries read them, at their own pace
    (folder / "views.py").write_text(VIEWS)
    file = folder / "memory.toml"
    log = folder / "collections.log"
    file.write_text(FILE.format(url=url, rows=rows, heap=HEAP_MIB, log=log))
    command = [sys.executable, "-m", "headrace", "pipeline", "run", "--json", str(file)]
    print(
        f"heap of {HEAP_MIB} MiB; MiB in use after a collection, and resident\n"
        f"{'batches':>8} {'heap':>7} {'beside':>7} {'workers':>8} {'runner':>7} {'ms':>6}"
    )
    with (
        (folder / "events").open("w") as events,
        subprocess.Popen(command, stdout=events, start_new_session=True) as runner,
    ):
        try:
            return _watch(runner, folder / "events", batches, log)
        finally:
            runner.send_signal(signal.SIGTERM)
            runner.wait(120)


def _fill(url: str, messages: int) -> None:
    with sync.connect(url) as connection:
        js = connection.jetstream()
        js.create_stream(name="NUMBERS", subjects=["numbers"])
        js.create_stream(name="OUT", subjects=["out"], max_msgs=1000)
        with js.publisher() as publisher:
            for number in range(messages):
                publisher.send("numbers", b"%d" % number)


def _watch(runner: subprocess.Popen[bytes], events: Path, batches: int, log: Path) -> list[Taken]:
    found: list[Taken] = []
    seen = 0
    done, begin, last, step = 0, time.monotonic(), 0, max(1, batches // LOOKS)
    with events.open() as lines:
        heard = time.monotonic()
        while done < batches:
            new = [json.loads(line) for line in lines]
            ended = sum(each["event"] == "batch" for each in new)
            if ended:
                done, heard = done + ended, time.monotonic()
            if runner.poll() is not None or time.monotonic() - heard > BATCH_MAX_S * 60:
                raise SystemExit(f"it ended, or stands, after {done} batches")
            if done - last >= step:
                ms = (time.monotonic() - begin) * 1000 / (done - last)
                _collect(runner.pid)
                found.append(_taken(runner.pid, done, _least_collected(log, seen)))
                seen = log.stat().st_size
                line = "{:8,} {:7.0f} {:7.0f} {:8.0f} {:7.0f}".format(*found[-1])
                print(line, f"{ms:6.0f}", flush=True)
                begin, last = time.monotonic(), done
            with contextlib.suppress(subprocess.TimeoutExpired):
                runner.wait(LOOK_S)
    return found


def _collect(pid: int) -> None:
    """Have the Java below it collect its garbage, if there is a program for that beside it."""
    for java in filter(is_java, with_those_below((pid,))[1:]):
        jcmd = Path(f"/proc/{java}/exe").resolve().with_name("jcmd")
        if jcmd.exists():
            subprocess.run([jcmd, str(java), "GC.run"], stdout=subprocess.DEVNULL, check=True)
        return


def _least_collected(log: Path, seen: int) -> float:
    """The least that a collection has left, of those told of behind so many bytes of the log."""
    with log.open() as lines:
        lines.seek(seen)
        return min((int(left) for left in COLLECTED.findall(lines.read())), default=0)


def _taken(pid: int, batches: int, heap: float) -> Taken:
    """Of a runner and its processes. What the workers share with their daemon counts once.

    A Java below a Java is about to become another program, and has the other's memory till then.
    """
    java = python = 0.0
    below = with_those_below((pid,))[1:]
    passing = {
        each
        for one in filter(is_java, below)
        for each in with_those_below((one,))[1:]
        if is_java(each)
    }
    for each in below:
        if each in passing:
            continue
        taken = share_mib(each) - (java_heap_mib(each, HEAP_MIB) if is_java(each) else 0)
        java, python = (java + taken, python) if is_java(each) else (java, python + taken)
    return Taken(batches, heap, java, python, share_mib(pid))


def _quarter(found: list[Taken], batches: int, number: int) -> tuple[float, ...]:
    of = [each for each in found if (number - 1) / 4 < each.batches / batches <= number / 4 + 0.03]
    return tuple(sum(column) / len(of) for column in list(zip(*of, strict=True))[1:])


def _change(before: float, after: float) -> str:
    return f"{before:.0f} -> {after:.0f} MiB"


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    sys.exit(main(*(given + [10_000, 1][len(given) :])))
