"""Our client and nats-py at the same work on the same nats-server: publishing, consuming, requests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import contenders
import natspy
import ourclient
import peers
import report
from contenders import running
from rawsocket import RawConnection

STREAM = contenders.STREAM
CONFIG = {"name": STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}
PAYLOAD_BYTES = 100
WINDOW = 16_000
KEPT_READY = 1_000
AWAITED = 3_000
WINDOWED = 200_000
WINDOWED_BY_NATS_PY = 30_000
CONSUMED = 100_000
REQUESTS = 3_000
ECHO = "echo.here"

NATS_PY = "nats-py"

Work = Callable[[peers.ServerProcess, str], float]


def awaited(rounds: int) -> None:
    rates = compare(
        "js.publish, each awaited",
        {
            NATS_PY: lambda server, _: natspy.publish_awaited(server.url, AWAITED, PAYLOAD_BYTES),
            "our client": lambda server, _: ourclient.publish_awaited(
                server.url, AWAITED, PAYLOAD_BYTES
            ),
        },
        rounds,
    )
    _claim("awaited publish, against nats-py", rates["our client"], rates[NATS_PY], 1.5)


def windowed(rounds: int) -> None:
    """nats-py publishes fewer, so as not to take minutes; its rate does not depend on that."""
    fewest = WINDOWED_BY_NATS_PY
    size = PAYLOAD_BYTES
    works: dict[str, Work] = {
        f"{NATS_PY}, publish_async": lambda server, _: natspy.publish_windowed(
            server.url, fewest, WINDOW, size
        ),
        f"{NATS_PY}, publish_async, its default of 4,000 pending": lambda server, _: (
            natspy.publish_windowed(server.url, fewest, 4_000, size)
        ),
        "our client, publisher.send": lambda server, _: ourclient.publish_windowed(
            server.url, WINDOWED, WINDOW, size
        ),
        "our client, publisher.send_many": lambda server, _: ourclient.publish_many(
            server.url, WINDOWED, WINDOW, size
        ),
    }
    rates = compare(f"publishing, {WINDOW:,} in flight", works, rounds)
    base = max(rate for name, rate in rates.items() if name.startswith(NATS_PY))
    figure = "windowed publish, against nats-py"
    _claim(figure, rates["our client, publisher.send"], base, 10)
    _claim(f"{figure} (send_many)", rates["our client, publisher.send_many"], base, 10)


def consuming(rounds: int) -> None:
    works: dict[str, Work] = {
        f"{NATS_PY}, subscribe(cb=…)": lambda server, durable: natspy.push(
            server.url, STREAM, durable, CONSUMED, 2 * KEPT_READY
        ),
        "our client, async for … consume()": lambda server, durable: ourclient.consume(
            server.url, STREAM, durable, CONSUMED, KEPT_READY
        ),
    }
    rates = compare("consuming continuously, explicit acks", works, rounds, filled=CONSUMED)
    theirs, ours = rates.values()
    _claim("consume with acks, against nats-py", ours, theirs, 8)


def compare(title: str, works: dict[str, Work], rounds: int, filled: int = 0) -> dict[str, float]:
    """Messages per second of each, interleaved, on one server; the medians."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    with running(contenders.NATS_ONE_CORE) as server, _admin(server) as admin:
        admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", CONFIG)
        if filled:
            admin.publish_acked(filled, WINDOW, PAYLOAD_BYTES)
        for number in range(rounds):
            for index, (name, work) in enumerate(works.items()):
                durable = f"bench-{number}-{index}"
                rate = work(server, durable)
                rates[name].append(rate)
                print(f"  round {number + 1}: {name}: {rate:,.0f}/s")
                if filled:
                    admin.request(f"$JS.API.CONSUMER.DELETE.{STREAM}.{durable}")
                else:
                    admin.request(f"$JS.API.STREAM.PURGE.{STREAM}")
    base = report.median(next(iter(rates.values())))
    report.table(
        f"{title}, {ourclient.loop_name}, median of {rounds}",
        ["client", "messages/s", "range", "× the first"],
        [
            [
                name,
                f"{report.median(values):,.0f}",
                report.spread(values),
                f"{report.median(values) / base:.1f}",
            ]
            for name, values in rates.items()
        ],
    )
    report.write(f"clients, {title}", {"rounds": rounds, "rates": rates})
    return {name: report.median(values) for name, values in rates.items()}


def requesting(rounds: int) -> None:
    """The median latency of a request that a bare socket in another thread answers at once."""
    asks = {NATS_PY: natspy.request_latencies, "our client": ourclient.request_latencies}
    medians: dict[str, list[float]] = {name: [] for name in asks}
    tails: dict[str, list[float]] = {name: [] for name in asks}
    with running(contenders.NATS_DEFAULT) as server, _echo(server):
        for number in range(rounds):
            for name, ask in asks.items():
                seconds = sorted(ask(server.url, ECHO, REQUESTS, PAYLOAD_BYTES))
                medians[name].append(1e6 * seconds[len(seconds) // 2])
                tails[name].append(1e6 * seconds[len(seconds) * 99 // 100])
                print(f"  round {number + 1}: {name}: {medians[name][-1]:,.0f} µs")
    p50 = {name: report.median(values) for name, values in medians.items()}
    report.table(
        f"request and reply, {ourclient.loop_name}, median of {rounds}",
        ["client", "p50 (µs)", "range of the p50", "p99 (µs)"],
        [
            [name, f"{p50[name]:,.0f}", report.spread(values), f"{report.median(tails[name]):,.0f}"]
            for name, values in medians.items()
        ],
    )
    report.write("clients, requests", {"rounds": rounds, "p50_us": medians, "p99_us": tails})
    report.claim(
        "request latency p50, against nats-py",
        f"{p50['our client']:,.0f} µs to {p50[NATS_PY]:,.0f} µs",
        p50["our client"] / p50[NATS_PY],
        at_most=0.7,
    )


def _claim(figure: str, ours: float, theirs: float, target: float) -> None:
    measured = f"{ours:,.0f}/s to {theirs:,.0f}/s"
    report.claim(figure, measured, ours / theirs, at_least=target)


@contextlib.contextmanager
def _admin(server: peers.ServerProcess) -> Iterator[RawConnection]:
    with RawConnection(server.host, server.port) as connection:
        yield connection


@contextlib.contextmanager
def _echo(server: peers.ServerProcess) -> Iterator[None]:
    """Answer requests on ECHO with two bytes, from a bare socket."""
    with RawConnection(server.host, server.port) as connection:
        wire = connection.socket
        wire.settimeout(None)
        wire.sendall(b"SUB " + ECHO.encode() + b" 9\r\nPING\r\n")

        def answer() -> None:
            while data := wire.recv(65_536):
                # One request at a time, small enough to come in one piece.
                if data.startswith(b"MSG "):
                    reply = data[: data.index(b"\r\n")].split(b" ")[3]
                    wire.sendall(b"PUB %b 2\r\nok\r\n" % reply)
                elif data.startswith(b"PING"):
                    wire.sendall(b"PONG\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield
        finally:
            wire.shutdown(socket.SHUT_RDWR)
            thread.join()


def run(rounds: int) -> None:
    awaited(rounds)
    windowed(rounds)
    consuming(rounds)
    requesting(rounds)
