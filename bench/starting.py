"""What a start costs: processor time until the server greets, on an empty store.

The first start of each server is not counted: it fills the page cache and, here, compiles the sources,
as the installation of a package does.
"""

from __future__ import annotations

import os
from pathlib import Path

import contenders
import report
from contenders import Contender, running

SECONDS_MAX = 0.15


def processor_seconds(pid: int) -> float:
    """What all threads of a process have used so far, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(contender: Contender) -> float:
    """One start."""
    with running(contender) as server:
        return processor_seconds(server.process.pid)


def run(rounds: int, servers: list[Contender]) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows, figures = [], {}
    found: dict[str, list[float]] = {contender.name: [] for contender in servers}
    for number in range(rounds + 1):
        for contender in servers:
            seconds = measure(contender)
            if number:
                found[contender.name].append(seconds)
    for name, seconds in found.items():
        middle = report.median(seconds)
        figures[name] = seconds
        rows.append([name, f"{middle:.3f}", f"{min(seconds):.3f} … {max(seconds):.3f}"])
        if name == contenders.HEADRACE.name:
            report.claim(
                "a start on an empty store",
                f"{middle:.3f} s",
                middle,
                at_most=SECONDS_MAX,
                unit=" s",
            )
    report.table("A start: processor time until it greets", ["server", "s", "range"], rows)
    report.write("starting", figures)
