"""What users do most of the day, in one table: rates, ratios and processor time of both servers."""

from __future__ import annotations

from collections.abc import Sequence

import contenders
import report
import survey_redis
from contenders import Contender, running
from survey_more import MORE
from survey_rows import ROWS, Measured

UNITS = {"memory": "MiB", "ms": "ms", "%": "%"}
"""What a row is in whose name begins so, and less is better; the others are messages/s."""


def run(
    rounds: int, servers: Sequence[Contender], only: Sequence[str], beside: str | None = None
) -> None:
    """Each row on each server in turn, a fresh server each time; ``only`` are parts of rows' names.

    ``beside`` is another checkout of Headrace, to tell what a change has brought. Where a redis-server is
    installed, its streams are measured with the rest, unless one server alone was asked for.
    """
    with_redis = survey_redis.is_installed() and len(servers) > 1 and beside is None
    if beside is not None:
        servers = [*servers, contenders.headrace_at(beside)]
    rows = {**ROWS, **MORE}
    chosen = [name for name in rows if not only or any(part in name for part in only)]
    if not chosen:
        raise SystemExit(f"no row is called {' or '.join(only)}; there is {', '.join(rows)}")
    names = [*(each.name for each in servers), *([survey_redis.NAME] if with_redis else [])]
    table, figures = [], {}
    for name in chosen:
        measured: dict[str, list[Measured]] = {each: [] for each in names}
        for number in range(rounds):
            turned = number % len(servers)
            for contender in [*servers[turned:], *servers[:turned]]:
                with running(contender) as server:
                    measured[contender.name].append(rows[name](server))
            if with_redis and name in survey_redis.REDIS_ROWS:
                with survey_redis.running() as at:
                    measured[survey_redis.NAME].append(survey_redis.REDIS_ROWS[name](at))
        rates = {each: [m / s for m, s, _ in found] for each, found in measured.items()}
        costs = {each: [1e6 * c / m for m, _, c in found if m] for each, found in measured.items()}
        table.append(_row(name, rates, costs))
        figures[name] = {"rates": rates, "server_us": costs}
        print("  " + " · ".join(table[-1]), flush=True)
    report.table(
        f"Messages/s and µs of the server per message, median of {rounds}",
        ["work", *(f"{name} /s" for name in names), "ratios", *(f"{name} µs" for name in names)],
        table,
    )
    report.write("survey", {"rounds": rounds, "rows": figures})


def _row(name: str, rates: dict[str, list[float]], costs: dict[str, list[float]]) -> list[str]:
    speeds = {server: report.median(values) for server, values in rates.items() if values}
    ours = speeds.get(contenders.HEADRACE.name)
    others = [speed for server, speed in speeds.items() if server != contenders.HEADRACE.name]
    ratios = [f"{ours / speed:.2f}" if speed else "–" for speed in others] if ours else []
    unit = UNITS.get(name.split()[0], "")
    return [
        name,
        *(_shown(speeds.get(server), unit) for server in rates),
        ", ".join(ratios) or "–",
        *(
            "–" if unit or not values else f"{report.median(values):.2f}"
            for values in costs.values()
        ),
    ]


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    return f"{value:,.2f} {unit}" if unit in ("ms", "%") else f"{value:,.0f} {unit}".strip()
