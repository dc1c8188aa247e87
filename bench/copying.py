"""A stream catches up with another: as its source, renamed by partitions, and as its mirror.

While it runs, somebody publishes to a third stream, one acknowledged message after the other.
"""

from __future__ import annotations

import time
from typing import Any

import contenders
import report
from contenders import Contender, running
from rawsocket import RawConnection
from waiting import elapse_here

MESSAGES = 500_000
PAYLOAD = 100
WINDOW = 16_000
CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}
ASIDE = {"name": "ASIDE", "subjects": ["aside"], "storage": "file", "num_replicas": 1}
PARTITIONS = {"src": "bench.*", "dest": "{{partition(8,1)}}.bench.{{wildcard(1)}}"}
COPIES: dict[str, dict[str, Any]] = {
    "source": {"sources": [{"name": contenders.STREAM}]},
    "source, partitions": {
        "sources": [{"name": contenders.STREAM, "subject_transforms": [PARTITIONS]}]
    },
    "mirror": {"mirror": {"name": contenders.STREAM}},
}


def subject(index: int) -> str:
    return f"bench.{index % 1000}"


def catch_up(connection: RawConnection, copy: dict[str, Any]) -> tuple[float, float]:
    """Messages per second, and the median acknowledged publish beside it in milliseconds."""
    times = []
    started = time.perf_counter()
    connection.request("$JS.API.STREAM.CREATE.COPY", {"name": "COPY", **copy})
    copied = 0
    while copied < MESSAGES:
        begun = time.perf_counter()
        connection.request("aside", {"beside": "it"})
        times.append(1000 * (time.perf_counter() - begun))
        copied = connection.request("$JS.API.STREAM.INFO.COPY")["state"]["messages"]
        elapse_here(0.01, "the copying is asked about now and then")
    seconds = time.perf_counter() - started
    connection.request("$JS.API.STREAM.DELETE.COPY")
    return MESSAGES / seconds, report.median(times)


def run(servers: list[Contender]) -> None:
    rows, figures = [], {}
    for contender in servers:
        with running(contender) as server, RawConnection(server.host, server.port) as connection:
            for config in (CONFIG, ASIDE):
                connection.request(f"$JS.API.STREAM.CREATE.{config['name']}", config)
            connection.publish_acked(MESSAGES, WINDOW, PAYLOAD, subject)
            for name, copy in COPIES.items():
                rate, beside = catch_up(connection, copy)
                figures[f"{contender.name} / {name}"] = {"rate": rate, "publish_ms": beside}
                rows.append([contender.name, name, f"{rate:,.0f}", f"{beside:.1f}"])
                print(f"  {contender.name}, {name}: {rate:,.0f}/s, {beside:.1f} ms")
    report.table(
        f"Catching up with {MESSAGES:,} messages of {PAYLOAD} bytes",
        ["server", "copy", "messages/s", "acked publish beside it (ms)"],
        rows,
    )
    report.write("copying", figures)
