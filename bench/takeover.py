"""How long rows do not flow when the runner of a pipeline is killed, and a standby goes on.

Two runners of one pipeline, an exactly-once query from a stream into another, under each kind of lease on
each server. The active one is killed, or ended, once its standby is ready; a new one takes the standby's
place. Rows of `surplus` are of a query that takes the overflow of a worker, killed in a burst: all of its
messages are to be handled, once. Beside it: a plain start, from the command to the first row.

Each figure is told on standard error as it is measured, and each row printed when its rounds are done.
Ctrl-C, or a runner that does not get on, ends it with what was measured so far.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import contenders
import report
import surplus
from contenders import Contender
from headrace import sync
from runners import (
    EVERY_S,
    LEASE,
    SECONDS,
    WRITTEN,
    Run,
    Takeover,
    Written,
    folder_of,
    measured,
    urgent,
)

AFTER_LEASE_S = 2.0
WORST_S = 3.0
START_S = 10.0
READ = "TAKEN"

FILE = """
[pipeline]
name = "takeover"
checkpoint = "checkpoint"
fast_local_checkpoint = true
{lease}
[sources.read]
options = {{ stream = "{read}", servers = "{url}" }}

[views.lines]
sql = "SELECT sequence, CAST(data AS string) AS text FROM read"

[sinks.out]
from = "lines"
format = "jetstream"

[sinks.out.options]
servers = "{url}"
stream = "{written}"
subject = "written"
delivery = "exactlyOnce"
sinkId = "out"
"""


@contextlib.contextmanager
def flowing(url: str) -> Iterator[Written]:
    """Two streams, and a message into the first one every few milliseconds."""
    over = threading.Event()
    with sync.connect(url) as connection:
        js = connection.jetstream()
        js.create_stream(name=READ, subjects=["taken"])
        subjects = ["written", f"_sink.{WRITTEN}.>"]
        js.create_stream(name=WRITTEN, subjects=subjects, allow_atomic=True)

        def publish() -> None:
            number = 0
            while not over.wait(EVERY_S):
                number += 1
                js.publish("taken", b"%d" % number)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield Written(js)
        finally:
            over.set()
            thread.join()


def takeovers(
    url: str, broker: int, rounds: int, *, kind: str, number: int
) -> Generator[Takeover, None, None]:
    """Kill the active runner, again and again; ``number``: the signal. Each is given as it is measured."""
    with flowing(url) as written, folder_of() as folder:
        lease = LEASE.format(url=url, kind=kind, seconds=SECONDS)
        file = folder / "takeover.toml"
        file.write_text(FILE.format(url=url, lease=lease, read=READ, written=WRITTEN))
        runs = [Run(file, 0)]
        try:
            runs[0].until(lambda: runs[0].events("batch"))
            for each in range(1, rounds + 1):
                active, standby = runs[-1], Run(file, each)
                runs.append(standby)
                standby.until(lambda standby=standby: standby.is_ready)
                # The active one, too: if it is not killed, it ends its batch first.
                with urgent(broker, active.process.pid, standby.process.pid, os.getpid()):
                    killed = time.time()
                    active.end(number)
                    standby.until(lambda standby=standby: standby.events("started"))
                    found = measured(standby, written, killed)
                yield found
                standby.until(lambda standby=standby: standby.events("batch"))
        finally:
            for run in runs:
                run.end()


def start(url: str) -> float:
    """Seconds from the command to the first row."""
    with flowing(url) as written, folder_of() as folder:
        file = folder / "takeover.toml"
        file.write_text(FILE.format(url=url, lease="", read=READ, written=WRITTEN))
        run = Run(file, 0)
        try:
            run.until(lambda: written.messages() > 0)
            return (written.first_after(run.began) or time.time()) - run.began
        finally:
            run.end()


class Shown:
    """What was measured so far: told at once, kept for the file."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.takeovers: dict[str, list[Takeover]] = {}
        self.starts: list[float] = []

    def takeover(self, name: str, found: Takeover) -> None:
        mine = self.takeovers.setdefault(name, [])
        mine.append(found)
        _say(
            f"{name}: {len(mine)} of {self.rounds}: lease {found.lease:.1f} s, plan {found.plan:.1f} s, "
            f"first row {found.batch:.1f} s, after the lease {found.after_lease:.1f} s"
        )

    def start(self, found: float) -> None:
        self.starts.append(found)
        _say(f"start: {len(self.starts)} of {self.rounds}: {found:.1f} s")

    def row(self, name: str) -> None:
        """The row of a cell whose rounds are over, or cut short."""
        found = self.takeovers.get(name, [])
        if found:
            is_whole = len(found) == self.rounds
            label = name if is_whole else f"{name} ({len(found)} of {self.rounds})"
            report.row(_row(label, found), WIDTHS)
            if is_whole:
                _claim(name, found)

    def write(self) -> None:
        figures: dict[str, Any] = {
            name: [vars(each) for each in found] for name, found in self.takeovers.items()
        }
        if self.starts:
            figures["starts"] = self.starts
        report.write("takeover", figures)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(rounds: int, servers: list[Contender], only: list[str]) -> None:
    """``rounds``: takeovers of each cell, and starts."""
    cells = [each for each in _cells(servers) if all(part in each[0] for part in only)]
    starts = not only or "start" in only
    if not cells and not starts:
        names = "; ".join(each[0] for each in _cells(servers))
        raise SystemExit(f"--only {' '.join(only)} is no part of a row; there is {names}; start")
    shown = Shown(rounds)
    try:
        if cells:
            _takeovers(shown, cells)
        if starts:
            _starts(shown, servers[0])
    except KeyboardInterrupt:
        _say("interrupted: the figures are those measured by now")
    finally:
        shown.write()


Cell = tuple[str, Contender, Callable[[str, int, int], Generator[Takeover, None, None]]]
"""What a row is called, its server, and what makes its takeovers: of its address, its process, how many."""
HEAD = ["what", "lease", "plan", "first row", "after the lease", "rows again after"]
WIDTHS = [48, 10, 10, 10, 15, 16]


def _cells(servers: list[Contender]) -> list[Cell]:
    cells: list[Cell] = []
    for contender in servers:
        for kind in ("bucket", "pinned"):
            name = f"{contender.name}, {kind}"
            for word, number in (("killed", signal.SIGKILL), ("ended", signal.SIGTERM)):
                making = partial(takeovers, kind=kind, number=number)
                cells.append((f"{name}, {word}", contender, making))
            cells.append(
                (f"{name}, surplus", contender, partial(surplus.takeovers, kind=kind, say=_say))
            )
    return cells


def _takeovers(shown: Shown, cells: list[Cell]) -> None:
    title = f"Takeovers, a lease of {SECONDS:g} s (median; worst of {shown.rounds})"
    report.head(title, HEAD, WIDTHS)
    for name, contender, making in cells:
        _say(f"{name}: begins")
        try:
            with (
                contenders.running(contender) as server,
                contextlib.closing(making(server.url, server.process.pid, shown.rounds)) as found,
            ):
                for each in found:
                    shown.takeover(name, each)
        finally:
            shown.row(name)


def _row(name: str, found: list[Takeover]) -> list[str]:
    parts: list[Callable[[Takeover], float]] = [
        lambda each: each.lease,
        lambda each: each.plan,
        lambda each: each.batch,
        lambda each: each.after_lease,
        lambda each: each.total,
    ]
    values = [[part(each) for each in found] for part in parts]
    return [name, *(f"{report.median(each):.1f}; {max(each):.1f}" for each in values)]


def _claim(name: str, found: list[Takeover]) -> None:
    after = [each.after_lease for each in found]
    middle, worst = report.median(after), max(after)
    for word, value, most in (("median", middle, AFTER_LEASE_S), ("worst", worst, WORST_S)):
        figure = f"{name}: after the lease, {word}"
        report.claim(figure, f"{value:.2f} s", value, at_most=most, unit=" s")


def _starts(shown: Shown, contender: Contender) -> None:
    for _ in range(shown.rounds):
        with contenders.running(contender) as server:
            shown.start(start(server.url))
    middle = report.median(shown.starts)
    report.claim("a start", f"{middle:.1f} s", middle, at_most=START_S, unit=" s")
