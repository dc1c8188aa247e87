"""WebSocket frames: what comes out is the same however they are cut, and nothing is raised."""

from __future__ import annotations

import random
import struct
from types import SimpleNamespace
from typing import Any

from headrace.broker.server.connections import websocket
from headrace.broker.server.connections.websocket import WebSocketListener, WebSocketOptions
from mutation import Target

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(payload: bytes, opcode: int = 2, *, fin: bool = True) -> bytes:
    head = bytes([(128 if fin else 0) | opcode])
    size = (
        bytes([128 | len(payload)])
        if len(payload) < 126
        else b"\xfe" + struct.pack("!H", len(payload))
    )
    return head + size + b"\0\0\0\0" + payload


CORPUS = [
    UPGRADE + frame(b"PING\r\n"),
    UPGRADE + frame(b"PUB a 5\r\nhello\r\n") + frame(b"are you there", 9),
    UPGRADE + frame(b"CONN", 1, fin=False) + frame(b"ECT {}\r\n", 0) + frame(b"\x03\xe8", 8),
    UPGRADE.replace(b"Sec-WebSocket-Version", b"Origin: http://b\r\nSec-WebSocket-Version"),
    UPGRADE + frame(b"x" * 300),
]
TOKENS = [
    *(
        b"\r\n",
        b"\r\n\r\n",
        b":",
        b"\x82",
        b"\x88",
        b"\x89",
        b"\xc2",
        b"\xff",
        b"\x7f",
        b"\x7e",
        b"\0",
    ),
    *(
        b"GET ",
        b"HTTP/1.1",
        b"Upgrade",
        b"permessage-deflate",
        frame(b"x"),
        frame(b"", 8),
        frame(b"y", 0),
    ),
]


class Transport:
    """A socket that takes everything."""

    def __init__(self) -> None:
        self.closing = False

    def __getattr__(self, name: str) -> Any:
        return nothing

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def abort(self) -> None:
        self.closing = True

    close = abort


class Above:
    """Stands where the connection is: keeps what it gets."""

    made: list[Above]

    def __init__(self, *args: Any, **values: Any) -> None:
        self.heard = b""
        self.lost = 0
        self.authenticated = False
        Above.made.append(self)

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost += 1

    def connection_made(self, transport: Any) -> None:
        pass

    eof_received = pause_writing = resume_writing = lambda self: None


def nothing(*args: Any) -> None:
    """Stands for whatever may be called."""


TIMER = SimpleNamespace(cancel=nothing)
SLICES = SimpleNamespace(
    begin=nothing, next_turn=nothing, is_used_up=lambda: False, ask=nothing, withdraw=nothing
)
LOOP = SimpleNamespace(call_later=lambda *args: TIMER)
OPTIONS = WebSocketOptions(port=0, same_origin=True)


def play(data: bytes, cuts: list[int]) -> tuple[bytes, int]:
    """What a connection hears of ``data``, and how many there were."""
    Above.made = []
    pump: Any = SimpleNamespace(
        loop=LOOP, slices=SLICES, connections_max=10, connections={}, is_ending=False
    )
    listener = WebSocketListener(pump, OPTIONS, 1024)
    socket: Any = listener._accept()
    transport: Any = Transport()
    socket.connection_made(transport)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if transport.closing:
            break
        socket.data_received(data[start:end])
    socket.eof_received()
    socket.connection_lost(None)
    assert not listener.loose, "a socket that nobody closes"
    return b"".join(above.heard for above in Above.made), len(Above.made)


def check(data: bytes, rng: random.Random) -> None:
    """Raise if cutting the input makes a difference."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((1, 3, 10))))
    real = websocket.Connection
    websocket.Connection = Above  # type: ignore[misc, assignment]
    try:
        assert play(data, cuts) == play(data, []), "cut differs from whole"
    finally:
        websocket.Connection = real  # type: ignore[misc]


TARGET = Target("websocket", CORPUS, TOKENS, check, joined_max=2)
