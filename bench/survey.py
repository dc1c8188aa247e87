"""What users do most of the day, in one table: rates, ratios and processor time of both servers."""

from __future__ import annotations

from collections.abc import Sequence

import contenders
import report
from contenders import Contender, running
from survey_rows import ROWS

MEMORY = "memory"


def run(
    rounds: int, servers: Sequence[Contender], only: Sequence[str], beside: str | None = None
) -> None:
    """Each row on each server in turn, a fresh server each time; ``only`` are parts of rows' names.

    ``beside`` is another checkout of Headrace, to tell what a change has brought.
    """
    if beside is not None:
        servers = [*servers, contenders.headrace_at(beside)]
    chosen = [name for name in ROWS if not only or any(part in name for part in only)]
    if not chosen:
        raise SystemExit(f"no row is called {' or '.join(only)}; there is {', '.join(ROWS)}")
    table, figures = [], {}
    for name in chosen:
        rates: dict[str, list[float]] = {each.name: [] for each in servers}
        costs: dict[str, list[float]] = {each.name: [] for each in servers}
        for number in range(rounds):
            turned = number % len(servers)
            for contender in [*servers[turned:], *servers[:turned]]:
                with running(contender) as server:
                    count, seconds, spent = ROWS[name](server)
                rates[contender.name].append(count / seconds)
                costs[contender.name].append(1e6 * spent / count)
        table.append(_row(name, rates, costs))
        figures[name] = {"rates": rates, "server_us": costs}
        print("  " + " · ".join(table[-1]), flush=True)
    names = [each.name for each in servers]
    report.table(
        f"Messages/s and µs of the server per message, median of {rounds}",
        ["work", *(f"{name} /s" for name in names), "ratios", *(f"{name} µs" for name in names)],
        table,
    )
    report.write("survey", {"rounds": rounds, "rows": figures})


def _row(name: str, rates: dict[str, list[float]], costs: dict[str, list[float]]) -> list[str]:
    speeds = {server: report.median(values) for server, values in rates.items()}
    ours = speeds.get(contenders.HEADRACE.name)
    others = [speed for server, speed in speeds.items() if server != contenders.HEADRACE.name]
    ratios = [f"{ours / speed:.2f}" for speed in others] if ours else []
    shown = "MiB" if name.startswith(MEMORY) else ""
    return [
        name,
        *(f"{speed:,.0f} {shown}".strip() for speed in speeds.values()),
        ", ".join(ratios) or "–",
        *("–" if shown else f"{report.median(values):.2f}" for values in costs.values()),
    ]
