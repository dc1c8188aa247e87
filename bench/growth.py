"""How work changes with ten and a hundred times as many keys, streams, subscriptions and connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import report
from contenders import Contender, running
from survey_rows import Measured, Row, awaited, get, list_keys, many_streams, put, wildcards

KINDS: dict[str, tuple[Sequence[int], Callable[[int], Row]]] = {
    "keys of a bucket, put": (
        (10_000, 100_000, 1_000_000),
        lambda keys: partial(put, keys, 100_000, 1, 4_000),
    ),
    "keys of a bucket, get": (
        (10_000, 100_000, 1_000_000),
        lambda keys: partial(get, keys, 80_000, 100),
    ),
    "keys of a bucket, list": (
        (10_000, 100_000, 1_000_000),
        lambda keys: partial(list_keys, keys),
    ),
    "streams, window 1,000": (
        (10, 100, 1_000),
        lambda streams: partial(many_streams, streams, 1_000, 20_000),
    ),
    "wildcards, publish": (
        (900, 9_000, 90_000),
        lambda patterns: partial(wildcards, patterns, 180_000),
    ),
    "connections, one publish in flight each": (
        (10, 100, 1_000),
        lambda clients: partial(awaited, clients, 30_000),
    ),
}


def run(rounds: int, servers: Sequence[Contender], only: Sequence[str]) -> None:
    """Each kind at each size on each server in turn; ``only`` are parts of the kinds' names."""
    table, figures = [], {}
    for kind, (sizes, row_of) in KINDS.items():
        if only and not any(part in kind for part in only):
            continue
        for contender in servers:
            rates: list[float] = []
            costs: list[float] = []
            for size in sizes:
                found = [_measured(contender, row_of(size)) for _ in range(rounds)]
                rates.append(report.median([count / seconds for count, seconds, _ in found]))
                costs.append(report.median([1e6 * spent / count for count, _, spent in found]))
            figures[f"{kind}, {contender.name}"] = {"sizes": sizes, "rates": rates, "us": costs}
            shown = [f"{rate:,.0f} ({cost:.2f})" for rate, cost in zip(rates, costs, strict=True)]
            line = [kind, f"{sizes[0]:,}", contender.name, *shown, f"{costs[-1] / costs[0]:.2f}"]
            table.append(line)
            print("  " + " · ".join(line), flush=True)
    report.table(
        f"Messages/s (µs of the server per message) at 1, 10 and 100 times the size, median of {rounds}",
        ["what grows", "from", "server", "1×", "10×", "100×", "µs, 100× to 1×"],
        table,
    )
    report.write("growth", {"rounds": rounds, "kinds": figures})


def _measured(contender: Contender, row: Row) -> Measured:
    with running(contender) as server:
        return row(server)
