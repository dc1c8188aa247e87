"""Streams that keep the newest messages of each subject, as every key-value bucket does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import contenders
import cpu
import report
from contenders import Contender, running
from rawsocket import RawConnection

MESSAGES = 200_000
PAYLOAD_BYTES = 100
WINDOW = 16_000
CASES = ((1_000, -1), (1_000, 1), (50_000, 1), (50_000, 10))
"""Keys, and how many messages of each are kept; -1: all."""


def subject(keys: Sequence[int], index: int) -> str:
    return f"bench.{keys[index]}"


def measure(contender: Contender, storage: str, keys: int, kept: int) -> tuple[float, float]:
    """Messages per second, and the server's µs per message, into a stream that has every key."""
    generator = random.Random(1)
    chosen = [generator.randrange(keys) for _ in range(MESSAGES)]
    config = {
        "name": contenders.STREAM,
        "subjects": ["bench.>"],
        "storage": storage,
        "num_replicas": 1,
        "max_msgs_per_subject": kept,
    }
    with running(contender) as server, RawConnection(server.host, server.port) as connection:
        connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", config)
        connection.publish_acked(keys, WINDOW, PAYLOAD_BYTES, partial(subject, range(keys)))
        before = cpu.of_process(server.process.pid)
        seconds = connection.publish_acked(
            MESSAGES, WINDOW, PAYLOAD_BYTES, partial(subject, chosen)
        )
        spent = cpu.of_process(server.process.pid) - before
        info = connection.request(f"$JS.API.STREAM.INFO.{contenders.STREAM}")
        assert kept < 0 or info["state"]["messages"] <= keys * kept, info
    return MESSAGES / seconds, 1e6 * spent / MESSAGES


def run(rounds: int, servers: list[Contender]) -> None:
    rows, figures = [], {}
    for storage in ("memory", "file"):
        for keys, kept in CASES:
            measured: dict[str, list[tuple[float, float]]] = {each.name: [] for each in servers}
            for _ in range(rounds):
                for contender in servers:
                    measured[contender.name].append(measure(contender, storage, keys, kept))
            what = f"{storage}, {keys:,} keys, {'all' if kept < 0 else kept} kept"
            for name, values in measured.items():
                rates = [rate for rate, _ in values]
                cost = report.median([us for _, us in values])
                rate = report.median(rates)
                print(f"  {what}: {name}: {rate:,.0f}/s, {cost:.2f} µs")
                figures[f"{what}: {name}"] = {"rates": rates, "server_us": cost}
                rows.append([what, name, f"{rate:,.0f}", report.spread(rates), f"{cost:.1f}"])
    report.table(
        f"Publishing {MESSAGES:,} messages to streams that keep the newest, median of {rounds}",
        ["stream", "server", "messages/s", "range", "server µs/message"],
        rows,
    )
    report.write("buckets", figures)
