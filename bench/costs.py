"""What the broker's promises cost: delivery, many waiting pulls, memory, reopening, filtered reading.

Every figure is made with servers in processes of their own and a reader on a bare socket.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contenders
import cpu
import peers
import report
from contenders import HEADRACE, NATS_DEFAULT, Contender, running
from rawpull import pull_all
from rawsocket import RawConnection
from waiting import until_here

STREAM = contenders.STREAM
CONFIG = {"name": STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}
WINDOW = 16_000
PAYLOAD_BYTES = 100
PULL_BATCH = 1_000
PARTITIONS = 16
FILTERS = 8
CACHE_BYTES = 64 * 1024 * 1024
HOUR_NS = 3_600 * 1_000_000_000


@dataclass(frozen=True)
class Sizes:
    """How much of everything; ``small`` is for trying it out."""

    delivered: int = 300_000
    waiting: int = 10_000
    handed_out: int = 30_000
    stored: int = 4_000_000
    keys: int = 16_000
    filtered_from: int = 320_000


FULL = Sizes()
SMALL = Sizes(30_000, 1_000, 20_000, 200_000, 1_600, 32_000)


def create_consumer(connection: RawConnection, name: str, **config: Any) -> None:
    body = {"stream_name": STREAM, "config": {"durable_name": name, **config}}
    connection.request(f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}", body)


@contextmanager
def filled(
    contender: Contender, messages: int
) -> Iterator[tuple[peers.ServerProcess, RawConnection]]:
    with running(contender) as server, RawConnection(server.host, server.port) as admin:
        admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", CONFIG)
        admin.publish_acked(messages, WINDOW, PAYLOAD_BYTES)
        yield server, admin


# Delivery


def delivery(rounds: int, sizes: Sizes) -> None:
    """One pull consumer, explicit acks, the same reader for both servers, one round after the other."""
    rates: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    count = sizes.delivered
    with filled(HEADRACE, count) as ours, filled(NATS_DEFAULT, count) as theirs:
        for number in range(rounds):
            for name, (server, admin) in (("headrace", ours), ("nats-server", theirs)):
                consumer = f"reader-{number}"
                create_consumer(
                    admin, consumer, ack_policy="explicit", max_ack_pending=4 * PULL_BATCH
                )
                before = cpu.of_process(server.process.pid)
                with RawConnection(server.host, server.port) as reader:
                    seconds = pull_all(
                        reader, STREAM, consumer, count, PULL_BATCH, acks=True, in_flight=2
                    )
                    wait_for_acks(admin, consumer, count)
                used = cpu.of_process(server.process.pid) - before
                rates.setdefault(name, []).append(count / seconds)
                spent.setdefault(name, []).append(1e6 * used / count)
                admin.request(f"$JS.API.CONSUMER.DELETE.{STREAM}.{consumer}")
                print(f"  round {number + 1}: {name}: {count / seconds:,.0f}/s")
    report.table(
        f"Delivering {count:,} messages of {PAYLOAD_BYTES} bytes, explicit acks, median of {rounds}",
        ["server", "messages/s", "range", "server µs/message"],
        [
            [
                name,
                f"{report.median(each):,.0f}",
                report.spread(each),
                f"{report.median(spent[name]):.2f}",
            ]
            for name, each in rates.items()
        ],
    )
    report.write("costs, delivery", {"rounds": rounds, "rates": rates, "server_us": spent})
    one, other = (report.median(rates[name]) for name in ("headrace", "nats-server"))
    report.claim(
        "delivering with acks, against nats-server",
        f"{one:,.0f}/s to {other:,.0f}/s",
        one / other,
        at_least=0.5,
    )


def wait_for_acks(admin: RawConnection, consumer: str, count: int) -> None:
    """Until the server has counted every acknowledgement."""
    call = f"$JS.API.CONSUMER.INFO.{STREAM}.{consumer}"
    until_here(
        lambda: admin.request(call)["ack_floor"]["stream_seq"] == count,
        f"{consumer}: not all {count} acknowledged",
        within=20,
    )


# Waiting pulls


def waiting(rounds: int, sizes: Sizes) -> None:
    """The same messages handed to one waiting pull, and in turn to thousands of them."""
    costs: dict[int, list[float]] = {1: [], sizes.waiting: []}
    count = sizes.handed_out
    with filled(HEADRACE, count) as (server, admin):
        for number in range(rounds):
            for pulls in costs:
                name = f"waiting-{number}-{pulls}"
                cost = handing_out(server, admin, name, pulls, count)
                costs[pulls].append(1e6 * cost / count)
                print(f"  round {number + 1}: {pulls:,} waiting: {1e6 * cost / count:.2f} µs")
    one, many = (report.median(each) for each in costs.values())
    report.table(
        f"Handing out {count:,} messages, processor time of the broker, median of {rounds}",
        ["pulls waiting", "µs per message", "range"],
        [
            [
                f"{pulls:,}",
                f"{report.median(each):.2f}",
                f"{min(each):.2f} … {max(each):.2f}",
            ]
            for pulls, each in costs.items()
        ],
    )
    report.write("costs, waiting", {"rounds": rounds, "us": {str(k): v for k, v in costs.items()}})
    report.claim(
        f"a delivery with {sizes.waiting:,} pulls waiting, against one",
        f"{many:.2f} µs to {one:.2f} µs",
        many / one,
        at_most=2,
    )


def handing_out(
    server: peers.ServerProcess, admin: RawConnection, name: str, pulls: int, count: int
) -> float:
    """Seconds of the broker's processor time from the end of a pause to the last message.

    Every pull asks for all messages, so that none of them ends, and they take turns.
    """
    until = "2099-01-01T00:00:00Z"
    create_consumer(
        admin,
        name,
        ack_policy="explicit",
        max_ack_pending=2 * count,
        max_waiting=pulls + 1,
        pause_until=until,
    )
    body = json.dumps({"batch": count, "expires": HOUR_NS}).encode()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}".encode()
    with RawConnection(server.host, server.port) as reader:
        inbox = b"_INBOX.waiting"
        pull = b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(body), body)
        reader.socket.sendall(b"SUB " + inbox + b" 9\r\n" + pull * pulls)
        call = f"$JS.API.CONSUMER.%s.{STREAM}.{name}"
        until_here(
            lambda: admin.request(call % "INFO")["num_waiting"] == pulls,
            "not all pulls wait",
            within=60,
        )
        before = cpu.of_process(server.process.pid)
        admin.request(call % "PAUSE", {})
        taken, tail = 0, b""
        while taken < count:
            data = tail + reader.socket.recv(1 << 20)
            taken += data.count(b"$JS.ACK.")
            tail = data[-7:]
        spent = cpu.of_process(server.process.pid) - before
        admin.request(call % "DELETE")
    return spent


# Memory and reopening


def keeping(sizes: Sizes) -> None:
    """What a stored message costs in memory, and how soon a broker with all of them is there again."""
    count = sizes.stored
    area = contenders.ROOT / "bench" / "results" / "stores"
    area.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=area))
    settings = f"payload_cache = {CACHE_BYTES}"
    try:
        server = peers.start_headrace(directory, config=settings)
        try:
            with RawConnection(server.host, server.port) as admin:
                admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", CONFIG)
                empty = cpu.resident_bytes(server.process.pid)
                for start in range(0, count, 200_000):  # frames are made before they are sent
                    admin.publish_acked(
                        min(200_000, count - start), WINDOW, PAYLOAD_BYTES, _some_subject
                    )
            used = cpu.resident_bytes(server.process.pid) - empty
        finally:
            server.stop()
        started = time.perf_counter()
        server = peers.start_headrace(directory, config=settings)
        try:
            with RawConnection(server.host, server.port) as admin:
                state = admin.request(f"$JS.API.STREAM.INFO.{STREAM}")["state"]
                seconds = time.perf_counter() - started
                assert state["messages"] == count, state
            reopened = cpu.resident_bytes(server.process.pid)
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)
    beside = max(0, used - CACHE_BYTES) / count
    report.table(
        f"{count:,} messages of {PAYLOAD_BYTES} bytes, payload cache of {CACHE_BYTES >> 20} MiB",
        ["figure", "value"],
        [
            ["memory more than empty (MiB)", f"{used / (1 << 20):.0f}"],
            ["… per message beside the cache (bytes)", f"{beside:.0f}"],
            ["broker started again, until STREAM.INFO answers (s)", f"{seconds:.2f}"],
            ["memory then, all of the process (MiB)", f"{reopened / (1 << 20):.0f}"],
        ],
    )
    figures = {"messages": count, "used": used, "reopened": reopened, "seconds": seconds}
    report.write("costs, keeping", figures)
    report.claim(
        "memory per stored message beside the payload cache",
        f"{used / (1 << 20):.0f} MiB with {count:,} messages, {CACHE_BYTES >> 20} MiB of it cache",
        beside,
        at_most=250,
        unit="bytes",
    )
    report.claim(
        f"start with {count:,} messages after a clean stop",
        "process, store and stream",
        seconds,
        at_most=2,
        unit="s",
    )


def _some_subject(index: int) -> str:
    return f"bench.{index % 1000}"


# Filters


def filtering(rounds: int, sizes: Sizes) -> None:
    """Catching up through a consumer with 8 wildcard filters, and through one without any."""
    filters = [f"bench.{2 * number}.>" for number in range(FILTERS)]
    cases: dict[str, tuple[dict[str, Any], int]] = {
        "everything": ({}, sizes.filtered_from),
        f"{FILTERS} wildcard filters": (
            {"filter_subjects": filters},
            sizes.filtered_from * FILTERS // PARTITIONS,
        ),
    }
    rates: dict[str, list[float]] = {name: [] for name in cases}

    def key(index: int) -> str:
        return f"bench.{index % PARTITIONS}.key.{index % sizes.keys}"

    with running(HEADRACE) as server, RawConnection(server.host, server.port) as admin:
        admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", CONFIG)
        admin.publish_acked(sizes.filtered_from, WINDOW, PAYLOAD_BYTES, key)
        for number in range(rounds):
            for name, (config, count) in cases.items():
                consumer = f"filtered-{number}-{len(config)}"
                create_consumer(
                    admin, consumer, ack_policy="explicit", max_ack_pending=4 * PULL_BATCH, **config
                )
                with RawConnection(server.host, server.port) as reader:
                    seconds = pull_all(
                        reader, STREAM, consumer, count, PULL_BATCH, acks=True, in_flight=2
                    )
                rates[name].append(count / seconds)
                admin.request(f"$JS.API.CONSUMER.DELETE.{STREAM}.{consumer}")
                print(f"  round {number + 1}: {name}: {count / seconds:,.0f}/s")
    report.table(
        f"Catching up over {sizes.keys:,} keys, {sizes.filtered_from:,} messages, median of {rounds}",
        ["consumer", "messages/s", "range"],
        [[name, f"{report.median(r):,.0f}", report.spread(r)] for name, r in rates.items()],
    )
    report.write("costs, filtering", {"rounds": rounds, "rates": rates})
    every, some = (report.median(each) for each in rates.values())
    report.claim(
        f"catching up through {FILTERS} wildcards over {sizes.keys:,} keys, against no filter",
        f"{some:,.0f}/s to {every:,.0f}/s",
        some / every,
        at_least=0.5,
    )


def run(rounds: int, sizes: Sizes = FULL) -> None:
    delivery(rounds, sizes)
    waiting(rounds, sizes)
    filtering(rounds, sizes)
    keeping(sizes)
