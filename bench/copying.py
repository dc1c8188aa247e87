"""A stream catches up with another: as its source, renamed by partitions, and as its mirror.

While it runs, somebody publishes to a third stream, one acknowledged message after the other.
"""

from __future__ import annotations

import time
from typing import Any

import contenders
import cpu
import peers
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


def catch_up(
    server: peers.ServerProcess, connection: RawConnection, copy: dict[str, Any]
) -> tuple[float, float, float]:
    """Messages per second, microseconds of the server for each, and the median acknowledged publish
    beside it in milliseconds."""
    times = []
    before = cpu.of_process(server.process.pid)
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
    used = cpu.of_process(server.process.pid) - before
    connection.request("$JS.API.STREAM.DELETE.COPY")
    return MESSAGES / seconds, 1e6 * used / MESSAGES, report.median(times)


def run(rounds: int, servers: list[Contender]) -> None:
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for number in range(rounds):
        for contender in servers:
            with (
                running(contender) as server,
                RawConnection(server.host, server.port) as connection,
            ):
                for config in (CONFIG, ASIDE):
                    connection.request(f"$JS.API.STREAM.CREATE.{config['name']}", config)
                connection.publish_acked(MESSAGES, WINDOW, PAYLOAD, subject)
                for name, copy in COPIES.items():
                    rate, used, beside = catch_up(server, connection, copy)
                    found.setdefault((contender.name, name), []).append((rate, used, beside))
                    print(
                        f"  round {number + 1}: {contender.name}, {name}:"
                        f" {rate:,.0f}/s, {used:.2f} µs, {beside:.1f} ms"
                    )
    rows, figures = [], {}
    for (server_name, name), results in found.items():
        rate, used, beside = (report.median(each) for each in zip(*results, strict=True))
        figures[f"{server_name} / {name}"] = {"rate": rate, "server_us": used, "publish_ms": beside}
        rows.append([server_name, name, f"{rate:,.0f}", f"{used:.2f}", f"{beside:.1f}"])
    report.table(
        f"Catching up with {MESSAGES:,} messages of {PAYLOAD} bytes, median of {rounds}",
        ["server", "copy", "messages/s", "server µs/message", "acked publish beside it (ms)"],
        rows,
    )
    report.write("copying", {"rounds": rounds, **figures})
