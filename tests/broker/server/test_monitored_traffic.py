"""Monitoring: what it says of the same traffic and the same settings, here and on nats-server."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import peers
from certificates import self_signed
from waiting import until_here

pytestmark = pytest.mark.peer

COUNTED = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
STREAM = b'{"name":"S","subjects":["s.*"],"storage":"memory","allow_direct":true}'
CONSUMER = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}'
Count = Callable[[], dict[str, int]]
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"


class Wire:
    """A connection that says what it is told, and waits for what it expects."""

    def __init__(self, server: peers.ServerProcess, inboxes: bytes) -> None:
        self._socket = socket.create_connection((server.host, server.port), timeout=30)
        self._file = self._socket.makefile("rb")
        assert self._file.readline().startswith(b"INFO ")
        options = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}'
        self.say(b"CONNECT %b\r\nSUB %b.* 1" % (options, inboxes))
        self.flush()

    def say(self, line: bytes) -> None:
        self._socket.sendall(line + b"\r\n")

    def publish(
        self, subject: bytes, payload: bytes, reply: bytes = b"", headers: bytes = b""
    ) -> None:
        if headers:
            sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
            self.say(b"HPUB %b %b %b\r\n%b%b" % (subject, reply, sizes, headers, payload))
        else:
            self.say(b"PUB %b %b %d\r\n%b" % (subject, reply, len(payload), payload))

    def message(self) -> tuple[list[bytes], bytes]:
        """The next message: the words of its line, and its headers and payload."""
        while True:
            words = self._file.readline().split()
            assert words, "hung up"
            if words[0] in (b"MSG", b"HMSG"):
                body = self._file.read(int(words[-1]) + 2)
                return words, body[:-2]

    def flush(self) -> None:
        self.say(b"PING")
        while self._file.readline() != b"PONG\r\n":
            pass

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextmanager
def wire_to(server: peers.ServerProcess, inboxes: bytes) -> Iterator[Wire]:
    wire = Wire(server, inboxes)
    try:
        yield wire
    finally:
        wire.close()


def page_of(port: int, page: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=30) as answer:
        return json.load(answer)


def core(wire: Wire, other: Wire) -> None:
    """Nobody hears it, one does, two do, one of a group; with headers and without; nothing at all."""
    other.say(b"SUB a 7\r\nSUB q g 8\r\nSUB q g 9")
    other.flush()
    wire.say(b"SUB a 7")
    for subject in (b"nobody", b"a", b"q"):
        for payload in (b"", b"x", b"y" * 3000):
            wire.publish(subject, payload)
            wire.publish(subject, payload, b"some.reply", HEADERS)
    wire.flush()
    other.flush()


def answered(wire: Wire, other: Wire) -> None:
    """A request and its answer, and a request to nobody."""
    other.say(b"SUB ask 10")
    other.flush()
    wire.publish(b"ask", b"how much", b"_IN.1")
    words, _ = other.message()
    other.publish(words[3], b"so much", headers=HEADERS)
    wire.message()
    wire.publish(b"nobody", b"?", b"_IN.2")
    wire.message()


def stored(wire: Wire, other: Wire) -> None:
    """Published and acknowledged, read and pulled, and answered."""
    for number in range(5):
        headers = HEADERS if number % 2 else b""
        wire.publish(b"s.%d" % number, b"p" * number, b"_IN.s", headers)
        wire.message()
    wire.publish(b"$JS.API.DIRECT.GET.S", b'{"seq":99}', b"_IN.d")
    wire.message()  # found, it would have a time, of any length
    other.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":5}', b"_OUT.p")
    for delivered in [other.message()[0] for _ in range(5)]:
        other.publish(delivered[3], b"+ACK", b"_OUT.a")
    for _ in range(5):
        other.message()
    other.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":5,"no_wait":true}', b"_OUT.p")
    other.message()  # there is none


TRAFFIC: dict[str, Callable[[Wire, Wire], None]] = {
    "core messages": core,
    "requests": answered,
    "a stream": stored,
}


def counts(port: int) -> dict[str, int]:
    """Those of the server, and of its connections."""
    server, connections = page_of(port, "/varz"), page_of(port, "/connz")["connections"]
    return {
        **{f"server's {name}": server[name] for name in COUNTED},
        **{f"connections' {name}": sum(each[name] for each in connections) for name in COUNTED},
    }


@contextmanager
def moved(server: peers.ServerProcess, port: int, traffic: str) -> Iterator[Count]:
    """How far the traffic has moved the counts."""
    with wire_to(server, b"_IN") as wire, wire_to(server, b"_OUT") as other:
        wire.publish(b"$JS.API.STREAM.CREATE.S", STREAM, b"_IN.c")
        wire.message()
        wire.publish(b"$JS.API.CONSUMER.CREATE.S.C", CONSUMER, b"_IN.c")
        wire.message()
        settled: list[dict[str, int]] = [{}]

        def is_settled() -> bool:
            """A server may count a message a moment after it has answered."""
            settled.append(counts(port))
            return len(settled) > 3 and settled[-1] == settled[-2] == settled[-3]

        until_here(is_settled)
        TRAFFIC[traffic](wire, other)
        wire.flush()
        other.flush()
        before = settled[-1]
        yield lambda: {name: now - before[name] for name, now in counts(port).items()}


@pytest.mark.parametrize("traffic", TRAFFIC)
def test_the_same_traffic_is_counted_as_by_nats_server(
    traffic: str,
    headrace_server: Callable[..., peers.ServerProcess],
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    ports = peers.free_port(), peers.free_port()
    ours = headrace_server(flags=["-m", str(ports[0])])
    theirs = nats_server(flags=["-m", str(ports[1])])
    with moved(ours, ports[0], traffic) as here, moved(theirs, ports[1], traffic) as there:
        wanted = here()
        assert all(wanted.values())
        seen: list[dict[str, int]] = []

        def is_the_same() -> bool:
            seen.append(there())
            return seen[-1] == wanted

        with suppress(AssertionError):
            until_here(is_the_same)
        assert wanted == seen[-1]


TLS = """
tls {{ cert_file: "{pem}", key_file: "{key}", timeout: {seconds} }}
"""
WEBSOCKET = """
websocket {{ host: "127.0.0.1", port: {port}, {more} }}
"""


@pytest.mark.parametrize(
    ("seconds", "websocket"), [(0, ""), (3, "no_tls: true"), (2.5, "tls"), (0, "tls")]
)
def test_deadlines_and_listeners_are_told_as_by_nats_server(
    seconds: float,
    websocket: str,
    headrace_server: Callable[..., peers.ServerProcess],
    nats_server: Callable[..., peers.ServerProcess],
    tmp_path: Path,
) -> None:
    pem, key = self_signed(tmp_path)
    told = []
    for start in (headrace_server, nats_server):
        monitoring, port = peers.free_port(), peers.free_port()
        text = TLS.format(pem=pem, key=key, seconds=seconds) if seconds else ""
        if websocket:
            tls = f'tls {{ cert_file: "{pem}", key_file: "{key}" }}'
            text += WEBSOCKET.format(port=port, more=tls if websocket == "tls" else websocket)
        flags = ["-m", str(monitoring)]
        if start is headrace_server:
            conf = tmp_path / "ours.conf"
            conf.write_text(text)
            start(flags=[*flags, "-c", str(conf)])
        else:
            start(flags=flags, config=text)
        page = page_of(monitoring, "/varz")
        listener = page["websocket"]
        assert listener.pop("port", port) == port
        listener.pop("tls_cert_not_after", "")  # not told by ours
        told.append({"tls_timeout": page["tls_timeout"], "websocket": listener})
    assert told[0] == told[1]
