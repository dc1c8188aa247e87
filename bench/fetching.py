"""``fetch(1000)``: our client and nats-py on the same nats-server, and a bare socket as the ceiling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import contenders
import cpu
import natspy
import ourclient
import peers
import report
from apart import apart
from contenders import Contender, running
from rawpull import pull_all
from rawsocket import RawConnection
from waiting import until_here

MESSAGES = 100_000
BATCH = 1_000
PAYLOAD_BYTES = 100
CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}

RAW = "bare socket that counts"
NATS_PY = "nats-py"
ONE_BY_ONE = "our client, await message.ack()"
WHOLE = "our client, await batch.ack()"
UNACKED = "our client"

# Takes the server's address and the name of a consumer that exists; returns messages per second.
Reader = Callable[[str, str], float]


def by_nats_py(url: str, durable: str) -> float:
    return natspy.fetch(url, contenders.STREAM, durable, MESSAGES, BATCH)


def one_by_one(url: str, durable: str) -> float:
    return ourclient.fetch(url, contenders.STREAM, durable, MESSAGES, BATCH, acks="each")


def whole_batches(url: str, durable: str) -> float:
    return ourclient.fetch(url, contenders.STREAM, durable, MESSAGES, BATCH, acks="batch")


def unacked(url: str, durable: str) -> float:
    return ourclient.fetch(url, contenders.STREAM, durable, MESSAGES, BATCH, acks="none")


def raw_acked(url: str, durable: str) -> float:
    with RawConnection.to(url) as reader:
        return MESSAGES / pull_all(
            reader, contenders.STREAM, durable, MESSAGES, BATCH, acks=True, in_flight=1
        )


def raw_unacked(url: str, durable: str) -> float:
    with RawConnection.to(url) as reader:
        return MESSAGES / pull_all(
            reader, contenders.STREAM, durable, MESSAGES, BATCH, acks=False, in_flight=1
        )


ACKED: dict[str, Reader] = {
    NATS_PY: by_nats_py,
    ONE_BY_ONE: one_by_one,
    WHOLE: whole_batches,
    RAW: raw_acked,
}
NOT_ACKED: dict[str, Reader] = {UNACKED: unacked, RAW: raw_unacked}


@dataclass
class Figures:
    """What the rounds of one reader gave: messages/s, and µs of processor time per message."""

    rates: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return report.median(self.rates)


def fill(server: peers.ServerProcess, messages: int, config: dict[str, Any]) -> None:
    with RawConnection(server.host, server.port) as connection:
        connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", config)
        connection.publish_acked(messages, 16_000, PAYLOAD_BYTES)


def measured(
    server: peers.ServerProcess, name: str, reader: Reader, durable: str, acks: bool
) -> tuple[float, float, float]:
    """One round: a consumer of its own, which afterwards must have delivered everything."""
    consumer: dict[str, Any] = {
        "durable_name": durable,
        "ack_policy": "explicit" if acks else "none",
        **({"max_ack_pending": 2 * BATCH} if acks else {}),
    }
    with RawConnection(server.host, server.port) as admin:
        call = f"$JS.API.CONSUMER.%s.{contenders.STREAM}.{durable}"
        body = {"stream_name": contenders.STREAM, "config": consumer}
        admin.request(call % "CREATE", body)
        theirs = cpu.of_process(server.process.pid)
        rate, client = apart(partial(reader, server.url, durable))
        # nats-server counts acknowledgements a little behind, so it is asked again.
        floor = "ack_floor" if acks else "delivered"
        until_here(
            lambda: admin.request(call % "INFO")[floor]["stream_seq"] == MESSAGES,
            f"{name}: not all {MESSAGES} ({floor})",
            every=0.05,
        )
        spent = cpu.of_process(server.process.pid) - theirs
        admin.request(call % "DELETE")
    return rate, client / MESSAGES * 1e6, spent / MESSAGES * 1e6


def compare(
    contender: Contender, readers: dict[str, Reader], rounds: int, *, acks: bool
) -> dict[str, Figures]:
    figures = {name: Figures() for name in readers}
    with running(contender) as server:
        fill(server, MESSAGES, CONFIG)
        for number in range(rounds):
            for index, (name, reader) in enumerate(readers.items()):
                durable = f"bench-{number}-{index}"
                rate, client, spent = measured(server, name, reader, durable, acks)
                figures[name].rates.append(rate)
                figures[name].client_us.append(client)
                figures[name].server_us.append(spent)
                print(f"  round {number + 1}: {name}: {rate:,.0f}/s")
    return figures


def show(title: str, figures: dict[str, Figures], base: str) -> None:
    report.table(
        title,
        ["client", "messages/s", "range", f"× {base}", "client µs/message", "server µs/message"],
        [
            [
                name,
                f"{each.rate:,.0f}",
                report.spread(each.rates),
                f"{each.rate / figures[base].rate:.2f}",
                f"{report.median(each.client_us):.2f}",
                f"{report.median(each.server_us):.2f}",
            ]
            for name, each in figures.items()
        ],
    )


def run(rounds: int) -> None:
    loop = ourclient.loop_name
    written: dict[str, Any] = {"rounds": rounds, "loop": loop}
    for contender in (contenders.NATS_DEFAULT, contenders.NATS_ONE_CORE):
        acked = compare(contender, ACKED, rounds, acks=True)
        title = f"fetch({BATCH}), explicit acks, {contender.name}, {loop}, median of {rounds}"
        show(title, acked, NATS_PY)
        written[f"acked, {contender.name}"] = {name: vars(each) for name, each in acked.items()}
    # The claims are about the last one, where the client is what is measured, as far as that goes.
    ours, theirs, ceiling = acked[ONE_BY_ONE], acked[NATS_PY], acked[RAW]
    report.claim(
        f"fetch({BATCH}) with acks, against nats-py",
        f"{ours.rate:,.0f}/s to {theirs.rate:,.0f}/s (a bare socket: {ceiling.rate:,.0f}/s)",
        ours.rate / theirs.rate,
        at_least=10,
    )
    report.claim(
        f"fetch({BATCH}) with acks, processor time of the client",
        f"{report.median(theirs.client_us):.1f} µs to {report.median(ours.client_us):.1f} µs",
        report.median(theirs.client_us) / report.median(ours.client_us),
        at_least=10,
    )
    plain = compare(contenders.NATS_ONE_CORE, NOT_ACKED, rounds, acks=False)
    show(f"fetch({BATCH}), no acks, {loop}, median of {rounds}", plain, RAW)
    written["not acked"] = {name: vars(each) for name, each in plain.items()}
    report.claim(
        f"fetch({BATCH}) without acks, against a socket that counts",
        f"{plain[UNACKED].rate:,.0f}/s to {plain[RAW].rate:,.0f}/s",
        plain[UNACKED].rate / plain[RAW].rate,
        at_least=0.5,
    )
    report.write("fetching", written)
