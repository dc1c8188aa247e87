"""What a runner that stands by costs, and whether those that get ready starve the active one.

``python bench/standing_by.py rest [MINUTES]``: memory and processor time of a standby beside an active runner
that has a batch every 20 s. Ends with status 1 where it took more than a fiftieth of a core, or where the
last quarter takes more memory than the second one by over a tenth. The first does not count: caches fill.

``python bench/standing_by.py starting [RUNNERS]``: rows per second of an active runner that has more to do
than it can, alone, and while runners (3) start beside it. Ends with status 1 below 0.7 of alone.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import contenders
from headrace import sync
from processes import is_java, share_mib, with_those_below
from report import table
from runners import LEASE, SECONDS, WRITTEN, Run, Written, folder_of
from takeover import FILE, READ

EVERY_S = 20.0
LOOK_S = 60.0
BUSY_MAX = 0.02
GROWS_MAX = 1.1
KEPT_MIN = 0.7
ALONE_S = 30.0
BACKLOG = 4_000_000
BATCH = 4_000


class Taken(NamedTuple):
    """Mebibytes of a standby, each process with its share of what several hold; seconds of processor."""

    minute: float
    java: float
    python: float
    processor_s: float

    @property
    def memory(self) -> float:
        return self.java + self.python


def look(run: Run, began: float) -> Taken:
    java = python = seconds = 0.0
    for process in with_those_below((run.process.pid,)):
        taken = share_mib(process)
        java, python = (java + taken, python) if is_java(process) else (java, python + taken)
        seconds += _processor_s(process)
    return Taken((time.monotonic() - began) / 60, java, python, seconds)


def _processor_s(process: int) -> float:
    """Of a process and of those it has started and that have ended; 0 if it has ended itself."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def pipeline(url: str, source: str = "") -> Iterator[tuple[Path, sync.JetStream]]:
    with sync.connect(url) as connection, folder_of() as folder:
        js = connection.jetstream()
        js.create_stream(name=READ, subjects=["taken"], storage="memory")
        subjects = ["written", f"_sink.{WRITTEN}.>"]
        js.create_stream(name=WRITTEN, subjects=subjects, allow_atomic=True, storage="memory")
        lease = LEASE.format(url=url, kind="bucket", seconds=SECONDS)
        text = FILE.format(url=url, lease=lease, read=READ, written=WRITTEN)
        file = folder / "standing.toml"
        file.write_text(text.replace('stream = "TAKEN", ', f'stream = "TAKEN", {source}'))
        yield file, js


def rest(minutes: float) -> int:
    found: list[Taken] = []
    with contenders.running(contenders.HEADRACE) as server, pipeline(server.url) as (file, js):
        runs = [Run(file, 0)]
        try:
            js.publish("taken", b"0")
            runs[0].until(lambda: runs[0].events("batch"))
            runs.append(Run(file, 1))
            runs[1].until(lambda: runs[1].is_ready)
            began = time.monotonic()
            found.append(_told(look(runs[1], began)))
            while found[-1].minute < minutes:
                until = time.monotonic() + LOOK_S
                while time.monotonic() < until:
                    threading.Event().wait(EVERY_S)
                    js.publish("taken", b"1")
                runs[1].until(lambda: runs[1].is_ready)  # and alive
                found.append(_told(look(runs[1], began)))
        except KeyboardInterrupt:
            print("interrupted: the figures are those measured by now", file=sys.stderr)
        finally:
            for run in runs:
                run.end()
    return _judged(found)


def _told(taken: Taken) -> Taken:
    print(
        f"{taken.minute:.0f} min: Java {taken.java:,.0f} MiB, Python {taken.python:,.0f} MiB, "
        f"together {taken.memory:,.0f} MiB, {taken.processor_s:.1f} s of processor",
        flush=True,
    )
    return taken


def _judged(found: list[Taken]) -> int:
    if len(found) < 8:
        print("too short to tell")
        return 1
    quarter = len(found) // 4
    parts = [found[quarter * n : quarter * (n + 1)] for n in range(4)]
    medians = [statistics.median(each.memory for each in part) for part in parts]
    spent = found[-1].processor_s - found[0].processor_s
    busy = spent / ((found[-1].minute - found[0].minute) * 60)
    grows = medians[3] / medians[1]
    quarters = ", ".join(f"{each:,.0f}" for each in medians)
    print(
        f"MiB in each quarter: {quarters}; the last is {grows:.2f} of the second; {busy:.2%} of a core"
    )
    return int(grows > GROWS_MAX or busy > BUSY_MAX)


def starting(runners: int) -> int:
    source = f"maxOffsetsPerTrigger = {BATCH}, "
    with (
        contenders.running(contenders.HEADRACE) as server,
        pipeline(server.url, source) as (file, js),
    ):
        with js.publisher(window=16_000) as publisher:
            publisher.send_many(("taken", b"%d" % each) for each in range(BACKLOG))
        written, runs = Written(js), [Run(file, 0)]
        try:
            # Batches get shorter for a while, as Java compiles what they run.
            runs[0].until(lambda: len(runs[0].events("batch")) > 30)
            alone = _rate(written, threading.Event(), ALONE_S)
            others = [Run(file, number) for number in range(1, runners + 1)]
            runs += others
            ready, began = threading.Event(), time.monotonic()
            waiting = threading.Thread(target=_when_ready, args=(others, ready))
            waiting.start()
            beside = _rate(written, ready)
            took = time.monotonic() - began
            waiting.join()
            again = _rate(written, threading.Event(), ALONE_S)
        finally:
            for run in runs:
                run.end()
    whole = (alone + again) / 2
    names = ["rows/s alone", "while others start", "alone again", "kept", "others ready after"]
    cells = [f"{alone:,.0f}", f"{beside:,.0f}", f"{again:,.0f}", f"{beside / whole:.2f}"]
    table(f"An active runner, {runners} start beside it", names, [[*cells, f"{took:.0f} s"]])
    return int(beside / whole < KEPT_MIN)


def _rate(written: Written, over: threading.Event, seconds: float | None = None) -> float:
    rows, began = written.messages(), time.monotonic()
    over.wait(seconds)
    return (written.messages() - rows) / (time.monotonic() - began)


def _when_ready(others: list[Run], ready: threading.Event) -> None:
    try:
        for each in others:
            each.until(lambda each=each: each.is_ready)  # type: ignore[misc]
    finally:
        ready.set()


def main(arguments: list[str]) -> int:
    match arguments:
        case ["rest", *rest_of] if len(rest_of) < 2:
            return rest(float(rest_of[0]) if rest_of else 70.0)
        case ["starting", *rest_of] if len(rest_of) < 2:
            return starting(int(rest_of[0]) if rest_of else 3)
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
