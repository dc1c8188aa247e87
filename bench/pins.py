"""What standing by costs the broker: one pinned client alone, and with 99 more that wait for its pin.

Every candidate keeps a pull waiting as a client's ``consume`` does: a connection and an inbox of its own,
expiry and heartbeat as partitioned consumer groups set them, a new pull when one has ended. One has the
pin, and acknowledges what comes. Told is the server's processor time per message from publish to ack.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import time
from collections.abc import Callable, Iterator
from typing import Any

import contenders
import cpu
import peers
import report
from contenders import Contender, running
from headrace.wire import Parser, frames
from rawsocket import RawConnection
from waiting import until_here

STREAM = contenders.STREAM
CONFIG = {"name": STREAM, "subjects": ["bench.>"], "retention": "workqueue", "num_replicas": 1}
CONSUMER = "pool"
GROUP = "PCG"
SECOND_NS = 1_000_000_000
ACK_WAIT_NS = 5 * SECOND_NS
EXPIRES_NS = max(ACK_WAIT_NS // 2, SECOND_NS)
BATCH = 500
RECEIVE_BYTES = 1 << 18
PAYLOAD_BYTES = 100
WINDOW = 500
CANDIDATES = (1, 100)
MESSAGES = {1: 3_000, 500: 20_000}
"""By ``max_ack_pending``."""
IDLE_S = 5.0
COST_MAX = 1.5


class Candidate:
    """One client of the pool, on a bare socket."""

    def __init__(
        self,
        server: peers.ServerProcess,
        number: int,
        stream: str = STREAM,
        consumer: str = CONSUMER,
    ) -> None:
        self._connection = RawConnection(server.host, server.port)
        self.socket = self._connection.socket
        self.inbox = b"_INBOX.candidate%d" % number
        self.taken = 0
        self._pin = ""
        self._asked = 0
        self._parser = Parser.for_client()
        self._to = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        self.socket.sendall(b"SUB %b 7\r\n%b" % (self.inbox, self._pull(BATCH)))

    def close(self) -> None:
        self._connection.close()

    def _pull(self, batch: int) -> bytes:
        self._asked += batch
        body: dict[str, Any] = {"batch": batch, "expires": EXPIRES_NS, "group": GROUP}
        body["idle_heartbeat"] = EXPIRES_NS // 2
        if self._pin:
            body["id"] = self._pin
        text = json.dumps(body).encode()
        return b"PUB %b %b %d\r\n%b\r\n" % (self._to, self.inbox, len(text), text)

    def read(self) -> None:
        """Take what came: acknowledge messages, and pull anew when half of them are there, or a pull ends."""
        out = []
        for frame in self._parser.feed(self.socket.recv(RECEIVE_BYTES)):
            if frame[0] == frames.PING:
                out.append(b"PONG\r\n")
            elif frame[0] == frames.MSG:
                _, _, _, reply, headers, _ = frame
                if reply.startswith(b"$JS.ACK."):
                    out.append(b"PUB %b 0\r\n\r\n" % reply)
                    self.taken += 1
                    self._asked -= 1
                    if not self._pin:
                        self._pin = _header(headers, b"Nats-Pin-Id")
                else:
                    self._ended(headers)
        if self._asked <= BATCH // 2:
            out.append(self._pull(BATCH - self._asked))
        if out:
            self.socket.sendall(b"".join(out))

    def _ended(self, headers: bytes) -> None:
        status = headers[9:12]
        if status in (b"408", b"409", b"423"):
            self._asked -= int(_header(headers, b"Nats-Pending-Messages") or 0)
            if status == b"423":
                self._pin, self._asked = "", 0


def _header(headers: bytes, name: bytes) -> str:
    return headers.partition(b"\r\n%b: " % name)[2].partition(b"\r\n")[0].decode()


class Pool:
    """The candidates on one consumer, and one who publishes to them."""

    def __init__(
        self, server: peers.ServerProcess, admin: RawConnection, size: int, acks: int
    ) -> None:
        config = {
            "durable_name": CONSUMER,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_NS,
            "max_ack_pending": acks,
            "priority_policy": "pinned_client",
            "priority_groups": [GROUP],
            "priority_timeout": ACK_WAIT_NS,
        }
        admin.request(
            f"$JS.API.CONSUMER.CREATE.{STREAM}.{CONSUMER}",
            {"stream_name": STREAM, "config": config},
        )
        self._admin = admin
        self._selector = selectors.DefaultSelector()
        self._candidates = [Candidate(server, number) for number in range(size)]
        for candidate in self._candidates:
            self._selector.register(candidate.socket, selectors.EVENT_READ, candidate.read)
        call = f"$JS.API.CONSUMER.INFO.{STREAM}.{CONSUMER}"
        until_here(
            lambda: admin.request(call)["num_waiting"] == size, "not all candidates wait", within=20
        )

    @property
    def taken(self) -> int:
        return sum(candidate.taken for candidate in self._candidates)

    def consume(self, messages: int) -> float:
        """Publish so many with a few in flight, while the pinned one takes them; returns the seconds."""
        end = self.taken + messages
        started = time.perf_counter()
        sent, base = 0, self.taken
        frame = b"PUB bench.publish %d\r\n%b\r\n" % (PAYLOAD_BYTES, b"x" * PAYLOAD_BYTES)
        while self.taken < end:
            room = min(messages - sent, WINDOW - (sent - (self.taken - base)))
            if room > 0:
                self._admin.socket.sendall(frame * room)
                sent += room
            self._turn(lambda: False)
        return time.perf_counter() - started

    def idle(self, seconds: float) -> None:
        """Keep the pulls alive while nothing is published."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._turn(lambda: time.monotonic() >= end)

    def _turn(self, is_over: Callable[[], bool]) -> None:
        ready = self._selector.select(0.1)
        if not ready and not is_over():
            return
        for key, _ in ready:
            key.data()

    def close(self) -> None:
        self._selector.close()
        for candidate in self._candidates:
            candidate.close()
        self._admin.request(f"$JS.API.CONSUMER.DELETE.{STREAM}.{CONSUMER}")
        self._admin.request(
            f"$JS.API.STREAM.PURGE.{STREAM}"
        )  # the last acks may have come too late


@contextlib.contextmanager
def pool(server: peers.ServerProcess, admin: RawConnection, size: int, acks: int) -> Iterator[Pool]:
    made = Pool(server, admin, size, acks)
    try:
        yield made
    finally:
        made.close()


def measure(
    server: peers.ServerProcess, admin: RawConnection, size: int, acks: int
) -> tuple[float, float]:
    """Messages per second, and microseconds of the server's processor time per message."""
    messages = MESSAGES[acks]
    with pool(server, admin, size, acks) as candidates:
        candidates.consume(messages // 10)
        before = cpu.of_process(server.process.pid)
        seconds = candidates.consume(messages)
        used = cpu.of_process(server.process.pid) - before
    return messages / seconds, 1e6 * used / messages


def standing_by(server: peers.ServerProcess, admin: RawConnection, size: int) -> float:
    """Milliseconds of the server's processor time per second while nothing is published."""
    with pool(server, admin, size, 1) as candidates:
        candidates.consume(1)
        before = cpu.of_process(server.process.pid)
        candidates.idle(IDLE_S)
        return 1e3 * (cpu.of_process(server.process.pid) - before) / IDLE_S


def run(rounds: int, servers: list[Contender]) -> None:
    """One and many candidates take turns on one server, so that a slow moment slows both."""
    rows, figures = [], {}
    for contender in servers:
        costs: dict[tuple[int, int], list[float]] = {}
        rates: dict[tuple[int, int], list[float]] = {}
        idle: dict[int, list[float]] = {}
        with running(contender) as server, RawConnection(server.host, server.port) as admin:
            admin.request(f"$JS.API.STREAM.CREATE.{STREAM}", {**CONFIG, "storage": "memory"})
            for number in range(rounds):
                for size in CANDIDATES:
                    for acks in MESSAGES:
                        rate, cost = measure(server, admin, size, acks)
                        costs.setdefault((acks, size), []).append(cost)
                        rates.setdefault((acks, size), []).append(rate)
                        print(
                            f"  round {number + 1}: {contender.name}, {size} candidates,"
                            f" max_ack_pending {acks}: {rate:,.0f}/s, {cost:.1f} µs"
                        )
                    if number == 0:
                        idle.setdefault(size, []).append(standing_by(server, admin, size))
        for acks in MESSAGES:
            one, many = (report.median(costs[acks, size]) for size in CANDIDATES)
            rows.append(
                [
                    contender.name,
                    str(acks),
                    *(f"{report.median(rates[acks, size]):,.0f}" for size in CANDIDATES),
                    f"{one:.1f}",
                    f"{many:.1f}",
                    f"{many / one:.2f}",
                ]
            )
            if contender is contenders.HEADRACE:
                report.claim(
                    f"{CANDIDATES[1]} pinned candidates, max_ack_pending {acks}, against one",
                    f"{many:.1f} µs to {one:.1f} µs",
                    many / one,
                    at_most=COST_MAX,
                )
        figures[contender.name] = {
            "costs_us": {str(key): value for key, value in costs.items()},
            "rates": {str(key): value for key, value in rates.items()},
            "idle_ms_per_s": {str(key): value for key, value in idle.items()},
        }
        text = ", ".join(f"{size}: {report.median(each):.2f} ms/s" for size, each in idle.items())
        print(f"  {contender.name}, idle candidates: {text}")
    one, many = CANDIDATES
    report.table(
        f"A pool of pinned candidates, publish to ack, median of {rounds}",
        [
            "server",
            "max_ack_pending",
            f"messages/s with {one}",
            f"with {many}",
            f"server µs/message with {one}",
            f"with {many}",
            "×",
        ],
        rows,
    )
    report.write("pins", {"rounds": rounds, **figures})
