"""The same work at one, ten and a hundred times the size: what grows, and how."""

from __future__ import annotations

import time

import contenders
import report
from contenders import Contender, running
from rawsocket import RawConnection

SIZES = (10_000, 100_000, 1_000_000)
SUBJECTS = 1_000
FAMILIES = 7
ASKED = 50
WINDOW = 16_000
CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}
FILTERS = ["bench.*.3", "bench.17.>"]


def subject(index: int) -> str:
    return f"bench.{index % SUBJECTS}.{index % FAMILIES}"


def expected_pending(size: int) -> int:
    return sum(1 for i in range(size) if i % FAMILIES == 3 or i % SUBJECTS == 17)


def measure(contender: Contender, size: int) -> tuple[float, float]:
    """Messages per second of publishing, and milliseconds for an exact ``num_pending``."""
    with running(contender) as server, RawConnection(server.host, server.port) as connection:
        connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", CONFIG)
        seconds = connection.publish_acked(size, WINDOW, 100, subject)
        times = []
        for number in range(ASKED):
            name = f"pending-{number}"
            config = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": FILTERS}
            started = time.perf_counter()
            info = connection.request(
                f"$JS.API.CONSUMER.CREATE.{contenders.STREAM}.{name}",
                {"stream_name": contenders.STREAM, "config": config},
            )
            times.append(1000 * (time.perf_counter() - started))
            assert info["num_pending"] == expected_pending(size), info
    return size / seconds, report.median(times)


def run(servers: list[Contender]) -> None:
    rows, figures = [], {}
    for contender in servers:
        for size in SIZES:
            rate, pending = measure(contender, size)
            figures[f"{contender.name} / {size}"] = {"publish": rate, "num_pending_ms": pending}
            rows.append([contender.name, f"{size:,}", f"{rate:,.0f}", f"{pending:.2f}"])
            print(f"  {contender.name}, {size:,}: {rate:,.0f}/s, {pending:.2f} ms")
    report.table(
        f"One, ten, a hundred times the messages ({SUBJECTS * FAMILIES:,} subjects)",
        ["server", "messages", "published/s", "create a consumer, num_pending exact (ms)"],
        rows,
    )
    report.write("scaling", figures)
