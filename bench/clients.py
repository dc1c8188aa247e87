"""Our client and nats-py at the same work on the same nats-server: publishing, consuming, requests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import contenders
import natspy
import ourclient
import peers
import report
from apart import ByName, apart
from contenders import Contender, running
from newer_python import newer_python_or_reason
from rawsocket import RawConnection

STREAM = contenders.STREAM
CONFIG = {"name": STREAM, "subjects": ["bench.>"], "num_replicas": 1}
FILE, MEMORY = {"storage": "file"}, {"storage": "memory"}
PAYLOAD_BYTES = 100
WINDOW = 16_000
BATCH = 1_000
AWAITED = 3_000
WINDOWED = 200_000
WINDOWED_BY_NATS_PY = 30_000
CONSUMED = 100_000
SINGLE = 5_000
LONGER = 4
REQUESTS = 3_000
ECHO = "echo.here"

NATS_PY = "nats-py"
NATSIO = "natsio"
OURS = "our client"
RAW = "bare socket that counts"


@dataclass(frozen=True)
class Work:
    """``run(the server's address, name of a durable consumer)`` is what measures, of ``messages`` messages.

    It is made of functions of modules, as it is measured in a process of its own.
    """

    run: Callable[[str, str], Callable[[], Any]]
    messages: int
    sources: Path | None = None  # of the client; None: these
    interpreter: Path | None = None  # None: this one

    def measured(self, url: str, durable: str) -> tuple[float, float]:
        """Messages/s, and the processor time in seconds."""
        value, spent = apart(self.run(url, durable), self.sources, self.interpreter)
        # Latencies are those of requests one after the other.
        rate = value if isinstance(value, float) else self.messages / sum(value)
        return rate, spent


def publishing(
    function: Callable[..., Any], messages: int, *arguments: Any, **options: Any
) -> Work:
    """``function(url, messages, …)``: it needs no consumer."""
    rest = (messages, *arguments)
    return Work(lambda url, durable: partial(function, url, *rest, **options), messages)


def pulling(function: Callable[..., float], messages: int, *arguments: Any) -> Work:
    """``function(url, stream, durable, messages, …)``."""
    rest = (messages, *arguments)
    return Work(lambda url, durable: partial(function, url, STREAM, durable, *rest), messages)


def asking(function: Callable[..., list[float]], requests: int, payload_bytes: int) -> Work:
    """``function(url, subject, requests, …)``, which gives the seconds of each."""
    return Work(
        lambda url, durable: partial(function, url, ECHO, requests, payload_bytes), requests
    )


ONE_BY_ONE, IN_BULK = 1.8, 4.0
"""How many times natsio's rate ours is to be."""


@dataclass(frozen=True)
class Pairing:
    """What natsio does, by the name of its function, and what our client does, both made by ``kind``."""

    kind: Callable[..., Work]
    theirs: str
    ours: Callable[..., Any]
    sizes: tuple[int, ...]
    target: float = IN_BULK
    filled: int = 0  # messages that are there before


_SENT = (WINDOWED, WINDOW, PAYLOAD_BYTES)
AGAINST_NATSIO = {
    "publish, awaited": Pairing(
        publishing,
        "publish_awaited",
        ourclient.publish_awaited,
        (AWAITED, PAYLOAD_BYTES),
        ONE_BY_ONE,
    ),
    "request": Pairing(
        asking,
        "request_latencies",
        ourclient.request_latencies,
        (AWAITED, PAYLOAD_BYTES),
        ONE_BY_ONE,
    ),
    "next(), ack": Pairing(
        pulling, "take_single", ourclient.take_single, (SINGLE,), ONE_BY_ONE, SINGLE
    ),
    "fetch(1), ack": Pairing(pulling, "pull", ourclient.pull, (SINGLE, 1), ONE_BY_ONE, SINGLE),
    "consume(max_messages=1), ack": Pairing(
        pulling, "consume", ourclient.consume, (SINGLE, 1), ONE_BY_ONE, SINGLE
    ),
    "fetch(1000), acks": Pairing(
        pulling, "pull", ourclient.pull, (CONSUMED, BATCH), filled=CONSUMED
    ),
    "consume(max_messages=1000), acks": Pairing(
        pulling, "consume", ourclient.consume, (CONSUMED, BATCH), filled=CONSUMED
    ),
    "publisher.send": Pairing(publishing, "publish_windowed", ourclient.publish_windowed, _SENT),
    "publisher.send_many": Pairing(publishing, "publish_windowed", ourclient.publish_many, _SENT),
    "core publish": Pairing(
        publishing, "publish_core", ourclient.publish_core, (WINDOWED, PAYLOAD_BYTES)
    ),
    "core, published and received": Pairing(
        publishing, "core_rounds", ourclient.core_rounds, (CONSUMED, BATCH, PAYLOAD_BYTES)
    ),
}


@dataclass
class Figures:
    rates: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return report.median(self.rates)

    @property
    def cost(self) -> float:
        """Processor time of the client, µs per message."""
        return report.median(self.client_us)


def awaited(rounds: int) -> None:
    works = {
        NATS_PY: publishing(natspy.publish_awaited, AWAITED, PAYLOAD_BYTES),
        OURS: publishing(ourclient.publish_awaited, AWAITED, PAYLOAD_BYTES),
    }
    figures = compare("js.publish, each awaited", works, rounds, FILE)
    claim("awaited publish, against nats-py", figures[OURS], figures[NATS_PY], 1.5)


def windowed(rounds: int) -> None:
    """Into memory, so that the server is not all that is measured. nats-py publishes fewer messages,
    so as not to take minutes; its rate does not depend on that. A fast batch has fewer in flight: the
    server says how many, at most 500 between two acknowledgements."""
    sent = (WINDOWED, WINDOW, PAYLOAD_BYTES)
    send, many = f"{OURS}, publisher.send", f"{OURS}, publisher.send_many"
    fast_send, fast_many = f"{send}, fast batches", f"{many}, fast batches"
    works = {
        NATS_PY: publishing(natspy.publish_windowed, WINDOWED_BY_NATS_PY, WINDOW, PAYLOAD_BYTES),
        send: publishing(ourclient.publish_windowed, *sent),
        many: publishing(ourclient.publish_many, *sent),
        fast_send: publishing(ourclient.publish_windowed, *sent, fast=True),
        fast_many: publishing(ourclient.publish_many, *sent, fast=True),
        RAW: publishing(_raw_publish, WINDOWED),
    }
    title, config = f"publishing, {WINDOW:,} in flight", MEMORY | {"allow_batched": True}
    figures = compare(title, works, rounds, config)
    theirs, ceiling = figures[NATS_PY], figures[RAW]
    claim("windowed publish, against nats-py", figures[many], theirs, 10, ceiling)
    claim("windowed publish in fast batches, against nats-py", figures[fast_many], theirs, 10)
    for what, name in (("", many), (" in fast batches", fast_many)):
        report.claim(
            f"windowed publish{what}, processor time of the client",
            f"{theirs.cost:.1f} µs to {figures[name].cost:.1f} µs",
            theirs.cost / figures[name].cost,
            at_least=10,
        )


def _raw_publish(url: str, messages: int) -> float:
    with RawConnection.to(url) as connection:
        return messages / connection.publish_acked(
            messages, WINDOW, PAYLOAD_BYTES, own_replies=True
        )


def consuming(rounds: int) -> None:
    """nats-py has no continuous pull: it is a loop of ``fetch``, or a subscription that is pushed to."""
    pulled, pushed = f"{NATS_PY}, loop of fetch({BATCH})", f"{NATS_PY}, pushed, subscribe(cb=…)"
    ours = f"{OURS}, async for … consume()"
    works = {
        pulled: pulling(natspy.pull, CONSUMED, BATCH),
        pushed: pulling(natspy.push, CONSUMED, 2 * BATCH),
        ours: pulling(ourclient.consume, CONSUMED, BATCH),
    }
    figures = compare("consuming continuously, explicit acks", works, rounds, FILE, CONSUMED)
    claim("consume with acks, against nats-py pulling", figures[ours], figures[pulled], 8)


def taking_single(rounds: int) -> None:
    """One message per pull, acknowledged before the next one is asked for."""
    theirs, ours = f"{NATS_PY}, fetch(1)", f"{OURS}, next()"
    works = {
        theirs: pulling(natspy.pull, SINGLE, 1),
        ours: pulling(ourclient.take_single, SINGLE),
    }
    compare("taking messages one by one", works, rounds, FILE, SINGLE)


def compare(
    title: str,
    works: dict[str, Work],
    rounds: int,
    storage: Mapping[str, object],
    filled: int = 0,
    server_is: Contender = contenders.NATS_ONE_CORE,
) -> dict[str, Figures]:
    """Each of the works once per round, on one server, with a stream that is emptied between."""
    figures = {name: Figures() for name in works}
    with (
        running(server_is) as server,
        _echo(server),
        RawConnection(server.host, server.port) as admin,
    ):
        admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", {**CONFIG, **storage})
        if filled:
            admin.publish_acked(filled, WINDOW, PAYLOAD_BYTES)
        for number in range(rounds):
            # In turn from either end: who comes second finds the server warmer.
            order = list(enumerate(works.items()))
            for index, (name, work) in order if number % 2 == 0 else reversed(order):
                durable = f"bench-{number}-{index}"
                rate, spent = work.measured(server.url, durable)
                figures[name].rates.append(rate)
                figures[name].client_us.append(1e6 * spent / work.messages)
                print(f"  round {number + 1}: {name}: {rate:,.0f}/s")
                if filled:
                    admin.request(f"$JS.API.CONSUMER.DELETE.{STREAM}.{durable}")
                else:
                    admin.request(f"$JS.API.STREAM.PURGE.{STREAM}")
    base = next(iter(figures.values())).rate
    report.table(
        f"{title}, {server_is.name}, {ourclient.loop_name}, median of {rounds}",
        ["client", "messages/s", "range", "× the first", "client µs/message"],
        [
            [
                name,
                f"{each.rate:,.0f}",
                report.spread(each.rates),
                f"{each.rate / base:.1f}",
                f"{each.cost:.2f}",
            ]
            for name, each in figures.items()
        ],
    )
    written = {name: vars(each) for name, each in figures.items()}
    report.write(f"clients, {title}", {"rounds": rounds, "figures": written})
    return figures


def claim(
    figure: str, ours: Figures, theirs: Figures, target: float, ceiling: Figures | None = None
) -> None:
    measured = f"{ours.rate:,.0f}/s to {theirs.rate:,.0f}/s"
    if ceiling is not None:
        measured += f" (a bare socket: {ceiling.rate:,.0f}/s)"
    report.claim(figure, measured, ours.rate / theirs.rate, at_least=target)


def requesting(rounds: int) -> None:
    """The median latency of a request that a bare socket in another process answers at once."""
    asks = {NATS_PY: natspy.request_latencies, OURS: ourclient.request_latencies}
    medians: dict[str, list[float]] = {name: [] for name in asks}
    tails: dict[str, list[float]] = {name: [] for name in asks}
    with running(contenders.NATS_ONE_CORE) as server, _echo(server):
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
        f"{p50[OURS]:,.0f} µs to {p50[NATS_PY]:,.0f} µs",
        p50[OURS] / p50[NATS_PY],
        at_most=0.7,
    )


@contextlib.contextmanager
def _echo(server: peers.ServerProcess) -> Iterator[None]:
    script = str(Path(__file__).with_name("echo.py"))
    command = [sys.executable, script, server.host, str(server.port), ECHO]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
        try:
            yield
        finally:
            process.terminate()


def versions(rounds: int, beside: str) -> None:
    """Our client, and that of another checkout, at the work of the other tables, and more of it: what differs
    is little. The ratios are medians of those of each round."""
    sources = contenders.sources_of(beside)
    sent = (LONGER * WINDOWED, WINDOW, PAYLOAD_BYTES)
    works = {
        "publishing, each awaited": (
            publishing(ourclient.publish_awaited, LONGER * AWAITED, PAYLOAD_BYTES),
            FILE,
            0,
        ),
        "publisher.send": (publishing(ourclient.publish_windowed, *sent), MEMORY, 0),
        "publisher.send_many": (publishing(ourclient.publish_many, *sent), MEMORY, 0),
        "consume, acks": (
            pulling(ourclient.consume, LONGER * CONSUMED, BATCH),
            FILE,
            LONGER * CONSUMED,
        ),
        "next(), acks": (pulling(ourclient.take_single, LONGER * SINGLE), FILE, LONGER * SINGLE),
        "consume(callback), acks": (
            pulling(ourclient.consume_by_callback, LONGER * CONSUMED, BATCH),
            FILE,
            LONGER * CONSUMED,
        ),
    }
    rows = []
    for title, (work, storage, filled) in works.items():
        pair = {"there": replace(work, sources=sources), "here": work}
        figures = compare(f"versions, {title}", pair, rounds, storage, filled)
        here, there = figures["here"], figures["there"]
        ratios = [a / b for a, b in zip(here.rates, there.rates, strict=True)]
        rows.append(
            [
                title,
                f"{there.rate:,.0f}",
                f"{here.rate:,.0f}",
                f"{report.median(ratios):.3f}",
                f"{report.median([a / b for a, b in zip(here.client_us, there.client_us, strict=True)]):.3f}",
            ]
        )
    report.table(
        f"Our client beside that of {beside}, median of {rounds}",
        ["work", "there /s", "here /s", "rate, pairs", "processor time, pairs"],
        rows,
    )


def against_natsio(rounds: int, servers: Sequence[Contender], only: Sequence[str]) -> None:
    """Our client and natsio at the same work on the same Python, which is the one that natsio needs."""
    python = newer_python_or_reason()
    if isinstance(python, str):
        raise SystemExit(f"natsio cannot be run: {python}")
    for server_is in servers:
        rows = []
        for title, each in AGAINST_NATSIO.items():
            if only and not any(part in title for part in only):
                continue
            theirs = each.kind(ByName("natsio_work", each.theirs), *each.sizes)
            works = {
                NATSIO: replace(theirs, interpreter=python),
                OURS: replace(each.kind(each.ours, *each.sizes), interpreter=python),
            }
            name = f"{title}, {server_is.name}"
            figures = compare(name, works, rounds, MEMORY, each.filled, server_is)
            one, other = figures[OURS], figures[NATSIO]
            claim(f"{name}, against natsio", one, other, each.target)
            rows.append(
                [
                    title,
                    f"{other.rate:,.0f}",
                    f"{one.rate:,.0f}",
                    f"{one.rate / other.rate:.2f}",
                    f"{other.cost:.2f}",
                    f"{one.cost:.2f}",
                    f"{other.cost / one.cost:.2f}",
                ]
            )
        report.table(
            f"natsio and our client, {server_is.name}, {ourclient.loop_name}, median of {rounds}",
            ["work", "natsio /s", "ours /s", "×", "natsio µs", "ours µs", "× of processor time"],
            rows,
        )


def run(
    rounds: int,
    beside: str | None = None,
    peer: str | None = None,
    servers: Sequence[Contender] = (),
    only: Sequence[str] = (),
) -> None:
    """``beside``: only our client, with that of another checkout of Headrace. ``peer``: another client than
    nats-py, on these servers, or on one that leaves a core to the client."""
    if beside is not None:
        versions(rounds, beside)
        return
    if peer is not None:
        against_natsio(rounds, servers or [contenders.NATS_ONE_CORE, contenders.HEADRACE], only)
        return
    awaited(rounds)
    windowed(rounds)
    consuming(rounds)
    taking_single(rounds)
    requesting(rounds)
