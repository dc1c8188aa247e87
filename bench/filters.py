"""Catching up with half of the partitions: a filter list, a consumer per partition, and no filter.

A member of a partitioned consumer group reads the partitions it owns. Subjects are as groups make them, with
the partition as first token, over a thousand keys. nats-server reads through a filter list so slowly from
files that only a part of the messages is read there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import contenders
import cpu
import peers
import report
from contenders import Contender, running
from rawpull import pull_all
from rawsocket import RawConnection

STREAM = contenders.STREAM
CONFIG = {
    "name": STREAM,
    "subjects": ["orders.*"],
    "num_replicas": 1,
    "subject_transform": {
        "src": "orders.*",
        "dest": "{{partition(16,1)}}.orders.{{wildcard(1)}}",
    },
}
STORAGES = ("file", "memory")
MESSAGES = 200_000
PARTITIONS = 16
OWNED = [0, 3, 4, 7, 9, 10, 13, 14]
KEYS = 1_000
PAYLOAD_BYTES = 100
WINDOW = 16_000
BATCH = 1_000
SLOW = 3_000
"""So many are read where nats-server is slow."""
AT_MOST = 2


def subject(index: int) -> str:
    return f"orders.k{index * 7919 % (PARTITIONS * KEYS)}"


@dataclass
class Figures:
    rates: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)


def read(
    server: peers.ServerProcess, admin: RawConnection, configs: list[dict[str, Any]], at_most: int
) -> tuple[float, float]:
    """One consumer after the other reads all there is: messages/s, and µs of the server for each."""
    pending = []
    for number, config in enumerate(configs):
        name = f"reader-{number}"
        document = {"durable_name": name, "ack_policy": "explicit", **config}
        made = admin.request(
            f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}",
            {"stream_name": STREAM, "config": {"max_ack_pending": 4 * BATCH, **document}},
        )
        pending.append(min(made["num_pending"], at_most))
    seconds = 0.0
    before = cpu.of_process(server.process.pid)
    for number, messages in enumerate(pending):
        with RawConnection(server.host, server.port) as reader:
            seconds += pull_all(
                reader, STREAM, f"reader-{number}", messages, BATCH, acks=True, in_flight=2
            )
    used = cpu.of_process(server.process.pid) - before
    for number in range(len(configs)):
        admin.request(f"$JS.API.CONSUMER.DELETE.{STREAM}.reader-{number}")
    return sum(pending) / seconds, 1e6 * used / sum(pending)


FILTERS = [f"{partition}.>" for partition in OWNED]
CASES: dict[str, list[dict[str, Any]]] = {
    "no filter": [{}],
    f"{len(FILTERS)} consumers, a filter each": [{"filter_subject": one} for one in FILTERS],
    f"{len(FILTERS)} filters": [{"filter_subjects": FILTERS}],
}


def run(rounds: int, servers: list[Contender], messages: int = MESSAGES) -> None:
    """The cases take turns on one server and stream."""
    rows, figures = [], {}
    for contender in servers:
        for storage in STORAGES:
            slow = storage == "file" and contender is not contenders.HEADRACE
            found: dict[str, Figures] = {}
            with running(contender) as server, RawConnection(server.host, server.port) as admin:
                admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", {**CONFIG, "storage": storage})
                admin.publish_acked(messages, WINDOW, PAYLOAD_BYTES, subject)
                for number in range(rounds):
                    for case, configs in CASES.items():
                        at_most = SLOW if slow and "filter_subjects" in configs[0] else messages
                        rate, used = read(server, admin, configs, at_most)
                        each = found.setdefault(case, Figures())
                        each.rates.append(rate)
                        each.server_us.append(used)
                        print(
                            f"  round {number + 1}: {contender.name}, {storage}, {case}:"
                            f" {rate:,.0f}/s, {used:.2f} µs"
                        )
            _, _, filtered = found.values()
            for case, each in found.items():
                rows.append(
                    [
                        contender.name,
                        storage,
                        case,
                        f"{report.median(each.rates):,.0f}",
                        report.spread(each.rates),
                        f"{report.median(each.server_us):.2f}",
                    ]
                )
                figures[f"{contender.name} / {storage} / {case}"] = vars(each)
            if contender is contenders.HEADRACE:
                for case, each in found.items():
                    if each is not filtered:
                        one, other = (
                            report.median(filtered.server_us),
                            report.median(each.server_us),
                        )
                        report.claim(
                            f"catching up through {len(OWNED)} filters, {storage}, against {case}",
                            f"{one:.2f} µs to {other:.2f} µs of the broker",
                            one / other,
                            at_most=AT_MOST,
                        )
    report.table(
        f"Catching up with {messages:,} messages, {PARTITIONS} partitions of {KEYS:,} keys",
        ["server", "storage", "read through", "messages/s", "range", "server µs/message"],
        rows,
    )
    report.write("filters", {"rounds": rounds, **figures})
