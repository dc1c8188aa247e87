"""What idle consumers cost the publisher: none, a thousand, and a thousand that wait with a pull.

The consumers have filters of all kinds, and what is published matches none that waits. Besides the rate
the server's own processor time per message is told, which a busy machine does not blur.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import contenders
import report
from contenders import Contender, running
from rawsocket import RawConnection
from waiting import until_here

CONSUMERS = 1_000
MESSAGES = 200_000
WINDOW = 16_000
SUBJECTS = 100
CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}
EXPIRES_NS = 3_600 * 1_000_000_000
COST_MAX = 1.1

CASES = {"none": (0, 0), "1,000 idle": (CONSUMERS, 0), "1,000 waiting": (CONSUMERS, CONSUMERS)}


def subject(index: int) -> str:
    return f"bench.{index % SUBJECTS}.x"


def filters(number: int) -> list[str]:
    """Of every kind: one subject, one or several patterns, hundreds of different ones."""
    kinds = (
        [f"bench.idle.{number}"],
        [f"bench.*.never-{number}"],
        [f"bench.idle-{number}.>"],
        [f"bench.*.a-{number}", f"bench.b-{number}.*"],
    )
    return kinds[number % len(kinds)]


def prepare(connection: RawConnection, consumers: int, waiting: int) -> None:
    """Make the consumers, and leave a pull at some of them."""
    connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", CONFIG)
    for number in range(consumers):
        name = f"idle-{number}"
        config = {
            "durable_name": name,
            "ack_policy": "explicit",
            "filter_subjects": filters(number),
        }
        connection.request(
            f"$JS.API.CONSUMER.CREATE.{contenders.STREAM}.{name}",
            {"stream_name": contenders.STREAM, "config": config},
        )
    pull = json.dumps({"batch": 1, "expires": EXPIRES_NS}).encode()
    for number in range(waiting):
        target = f"$JS.API.CONSUMER.MSG.NEXT.{contenders.STREAM}.idle-{number}".encode()
        connection.socket.sendall(
            b"PUB %b %b %d\r\n%b\r\n" % (target, connection.inbox, len(pull), pull)
        )
    last = f"$JS.API.CONSUMER.INFO.{contenders.STREAM}.idle-{consumers - 1}"
    if waiting:  # nats-server takes pulls in its own time
        until_here(lambda: connection.request(last)["num_waiting"], "no pull waits", within=60)


def processor_seconds(pid: int) -> float:
    """What a process has used so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(contender: Contender, case: str, messages: int) -> tuple[float, float]:
    """Messages per second, and microseconds of the server's processor time per message."""
    with running(contender) as server, RawConnection(server.host, server.port) as connection:
        prepare(connection, *CASES[case])
        connection.publish_acked(messages // 10, WINDOW, 100, subject)
        before = processor_seconds(server.process.pid)
        seconds = connection.publish_acked(messages, WINDOW, 100, subject)
        used = processor_seconds(server.process.pid) - before
    return messages / seconds, 1e6 * used / messages


def run(rounds: int, servers: list[Contender], messages: int = MESSAGES) -> None:
    """The cases take turns, so that a machine that slows down slows all of them."""
    rows, figures = [], {}
    for contender in servers:
        found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
        for _ in range(rounds):
            for case in CASES:
                found[case].append(measure(contender, case, messages))
                rate, cpu = found[case][-1]
                print(f"  {contender.name}, {case}: {rate:,.0f}/s, {cpu:.2f} µs each")
        base_rate = report.median([rate for rate, _ in found["none"]])
        base_cpu = report.median([cpu for _, cpu in found["none"]])
        for case, results in found.items():
            rates = [rate for rate, _ in results]
            cpu = report.median([used for _, used in results])
            cost = base_rate / report.median(rates)
            figures[f"{contender.name} / {case}"] = {"rates": rates, "cpu_us": cpu}
            rows.append(
                [
                    contender.name,
                    case,
                    f"{report.median(rates):,.0f}",
                    report.spread(rates),
                    f"{cpu:.2f}",
                    f"{cost:.2f}, {cpu / base_cpu:.2f}",
                ]
            )
            if contender is contenders.HEADRACE and case != "none":
                report.claim(
                    f"publishing beside consumers: {case}",
                    f"{cpu:.2f} µs of processor time against {base_cpu:.2f}",
                    cpu / base_cpu,
                    at_most=COST_MAX,
                )
    report.table(
        "What idle consumers cost the publisher",
        ["server", "consumers", "published/s", "range", "processor (µs)", "cost: time, processor"],
        rows,
    )
    report.write("idle", figures)
