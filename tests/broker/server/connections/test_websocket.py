"""The broker behind WebSockets: our client, the protocol's violations, and what a stranger may hold."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import struct
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import peers
from certificates import self_signed
from headrace import connect
from headrace.broker.core.auth.authentication import User
from headrace.broker.server import Broker
from headrace.broker.server.config.fields import from_plain, read_websocket
from headrace.broker.server.config.options import TlsOptions, WebSocketOptions
from headrace.errors import ConfigurationError

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: h:1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n"
)
CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def frame(payload: bytes, opcode: int = 2, *, mask: bool = True, fin: bool = True) -> bytes:
    head = bytes([(128 if fin else 0) | opcode])
    size, bit = len(payload), 128 if mask else 0
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    if not mask:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


class Raw:
    """A socket that speaks WebSocket by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> tuple[int, bytes]:
        """One frame: its opcode and payload. The server's are never masked."""
        async with asyncio.timeout(5):
            first, second = await self.reader.readexactly(2)
            size = second & 127
            assert not second & 128
            if size >= 126:
                raw = await self.reader.readexactly(2 if size == 126 else 8)
                size = int.from_bytes(raw, "big")
            return first & 15, await self.reader.readexactly(size)

    async def ends(self) -> bytes:
        """What comes until the socket closes."""
        async with asyncio.timeout(5):
            return await self.reader.read()


async def open_raw(broker: Broker, more: bytes = b"", *, upgrade: bool = True) -> Raw:
    port = int((broker.websocket_url or "").rpartition(":")[2])
    raw = Raw(*await asyncio.open_connection("127.0.0.1", port))
    if upgrade:
        raw.writer.write(UPGRADE + more + b"\r\n")
        async with asyncio.timeout(5):
            head = await raw.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        opcode, info = await raw.read()
        assert opcode == 2
        assert info.startswith(b"INFO {") or b"permessage-deflate" in more
    return raw


def broker(websocket: WebSocketOptions | None = None, **settings: Any) -> Broker:
    return Broker(websocket=websocket or WebSocketOptions(port=0), **settings)


async def test_our_client_works_through_it_with_large_and_many_messages() -> None:
    async with broker() as server, connect(server.websocket_url or "") as client:
        stream = await client.jetstream().create_stream(name="S", subjects=["s"])
        large = os.urandom(900_000)
        await client.jetstream().publish("s", large)
        subscription = await client.subscribe("x")
        for number in range(1000):
            await client.publish("x", b"%d" % number)
        heard = [(await subscription.next(timeout=5)).payload for _ in range(1000)]
        assert heard == [b"%d" % number for number in range(1000)]
        assert (await stream.get_message(1)).payload == large
        (session,) = server.hub.sessions.values()
        assert session.peer.transport == "websocket"
        assert session.describe()["client_type"] == "websocket"


async def test_credentials_are_asked_for_like_everywhere() -> None:
    async with broker(users=[User("ann", "p")]) as server:
        raw = await open_raw(server)
        raw.writer.write(frame(CONNECT))
        assert await raw.read() == (2, b"-ERR 'Authorization Violation'\r\n")
        opcode, reason = await raw.read()
        assert (opcode, reason[:2]) == (8, struct.pack("!H", 1008))
        raw.writer.close()


async def test_messages_may_be_cut_anywhere_and_come_as_text() -> None:
    async with broker() as server:
        raw = await open_raw(server)
        text = CONNECT + b"PING\r\n"
        for at in range(len(text) - 1):
            raw.writer.write(frame(text[at : at + 1], 1 if at % 2 else 2))
        raw.writer.write(frame(b"", fin=False) + frame(text[-1:], 0))
        assert await raw.read() == (2, b"PONG\r\n")
        raw.writer.write(frame(b"are you there", 9))
        assert await raw.read() == (10, b"are you there")
        raw.writer.write(frame(struct.pack("!H", 1000), 8))
        assert (await raw.read())[0] == 8
        assert await raw.ends() == b""
        raw.writer.close()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(b"PING\r\n", mask=False), 1002),
        (bytes([0xF2, 0x80, 0, 0, 0, 0]), 1002),
        (frame(b"x", 3), 1002),
        (frame(b"x" * 126, 9), 1002),
        (frame(b"x", 0), 1002),
        (frame(b"x" * 70_000), 1009),
        (b"\x82\xff" + struct.pack("!Q", 1 << 40), 1009),
        (frame(b"x" * 40_000, fin=False) + frame(b"x" * 40_000, 0), 1009),
    ],
    # The masks are random, and the names of tests must not be.
    ids=[
        "not masked",
        "a reserved bit",
        "an unknown kind",
        "a long ping",
        "a continuation of nothing",
        "too long",
        "much too long",
        "too long in pieces",
    ],
)
async def test_violations_of_the_protocol_close_with_their_code(sent: bytes, code: int) -> None:
    async with broker(users=[User("ann", "p")]) as server:
        raw = await open_raw(server)
        raw.writer.write(sent)
        opcode, reason = await raw.read()
        assert (opcode, struct.unpack("!H", reason[:2])[0]) == (8, code)
        assert await raw.ends() == b""
        raw.writer.close()
        assert not server.hub.sessions


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"426"),
        (b"POST / HTTP/1.1\r\nHost: h\r\n\r\n", b"405"),
        (UPGRADE.replace(b"Version: 13", b"Version: 12") + b"\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b""),
        (b"CONNECT {}\r\nPING\r\n", b""),
    ],
)
async def test_what_is_no_upgrade_is_refused(request_: bytes, status: bytes) -> None:
    async with broker() as server:
        raw = await open_raw(server, upgrade=False)
        raw.writer.write(request_)
        answer = await raw.ends()
        assert answer[9:12] == status
        raw.writer.close()
        assert not server.hub.sessions


async def test_pages_of_other_origins_are_kept_out() -> None:
    async with broker(WebSocketOptions(port=0, same_origin=True)) as server:
        raw = await open_raw(server, b"Origin: http://h:1\r\n")
        raw.writer.close()
        (await open_raw(server)).writer.close()
        other = await open_raw(server, upgrade=False)
        other.writer.write(UPGRADE + b"Origin: http://evil:1\r\n\r\n")
        assert (await other.ends()).startswith(b"HTTP/1.1 403 ")
        other.writer.close()
    async with broker(WebSocketOptions(port=0, allowed_origins=["https://a"])) as server:
        (await open_raw(server, b"Origin: https://a\r\n")).writer.close()
        other = await open_raw(server, upgrade=False)
        other.writer.write(UPGRADE + b"Origin: https://b\r\n\r\n")
        assert (await other.ends()).startswith(b"HTTP/1.1 403 ")
        other.writer.close()


@pytest.mark.parametrize(
    ("settings", "options", "headers", "is_let_in"),
    [
        ({}, {}, "", True),
        ({}, {}, "Origin: http://h:1", True),
        ({}, {}, "Origin: http://evil:1", False),
        ({}, {}, "Origin: null", False),
        ({}, {}, "Origin: http://h:2", False),
        ({}, {}, "Origin: http://h:1\r\nSec-Fetch-Site: cross-site", False),
        ({}, {"same_origin": False}, "Origin: http://evil:1", True),
        ({}, {"allowed_origins": ["http://a"]}, "Origin: http://a", True),
        ({}, {"allowed_origins": ["http://a"]}, "Origin: http://h:1", False),
        ({"token": "t"}, {}, "Origin: http://evil:1", True),
        ({"token": "t"}, {"same_origin": True}, "Origin: http://evil:1", False),
    ],
)
async def test_without_a_login_pages_of_any_site_are_kept_out_unless_they_are_allowed(
    settings: dict[str, Any], options: dict[str, Any], headers: str, is_let_in: bool
) -> None:
    async with broker(WebSocketOptions(port=0, **options), **settings) as server:
        raw = await open_raw(server, upgrade=False)
        raw.writer.write(UPGRADE + headers.encode() + (b"\r\n\r\n" if headers else b"\r\n"))
        answer = await raw.reader.readuntil(b"\r\n")
        assert answer.startswith(b"HTTP/1.1 101 " if is_let_in else b"HTTP/1.1 403 ")
        raw.writer.close()


async def test_a_name_that_was_moved_here_is_no_reason_to_let_its_page_in() -> None:
    async with broker() as server:
        raw = await open_raw(server, upgrade=False)
        moved = UPGRADE.replace(b"Host: h:1", b"Host: evil.example:1")
        raw.writer.write(moved + b"Origin: http://evil.example:1\r\n\r\n")
        assert (await raw.ends()).startswith(b"HTTP/1.1 403 ")
        raw.writer.close()


async def test_an_upgrade_that_takes_too_long_is_hung_up_on() -> None:
    async with broker(WebSocketOptions(port=0, handshake_timeout=0.05)) as server:
        raw = await open_raw(server, upgrade=False)
        raw.writer.write(b"GET / HTTP/1.1\r\nHost:")
        assert await raw.ends() == b""
        raw.writer.close()


async def test_a_stopping_broker_says_good_bye() -> None:
    async with broker() as server:
        raw = await open_raw(server)
        half = await open_raw(server, upgrade=False)
    heard = await raw.ends()
    assert heard[:1] == b"\x88"
    assert await half.ends() == b""
    raw.writer.close()
    half.writer.close()


async def test_compression_is_agreed_on_when_wanted_and_its_bombs_do_not_go_off() -> None:
    import zlib

    options = WebSocketOptions(port=0, compression=True)
    async with broker(options, users=[User("ann", "p")]) as server:
        raw = await open_raw(server, b"Sec-WebSocket-Extensions: permessage-deflate\r\n")
        bomb = zlib.compressobj(wbits=-15)
        packed = bomb.compress(b"\0" * 50_000_000) + bomb.flush(zlib.Z_SYNC_FLUSH)
        raw.writer.write(bytes([frame(packed[:-4])[0] | 0x40]) + frame(packed[:-4])[1:])
        opcode, reason = await raw.read()
        assert (opcode, struct.unpack("!H", reason[:2])[0]) == (8, 1009)
        raw.writer.close()


async def test_it_speaks_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = TlsOptions(certificate_file=certificate, key_file=key)
    async with broker(WebSocketOptions(port=0, tls=tls)) as server:
        assert (server.websocket_url or "").startswith("wss://")
        async with connect(
            server.websocket_url or "", tls=ssl.create_default_context(cafile=certificate)
        ) as client:
            await client.flush()


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"port": 1}, "needs tls { … }, or no_tls: true"),
        ({"port": 1, "no_tls": True, "tls": {}}, "needs tls { … }, or no_tls: true"),
        ({"port": 1, "no_tls": True, "jwt_cookie": "x"}, "jwt_cookie: not supported in websocket"),
        ({"port": 1, "tls": {"cert_file": "a"}}, "needs both cert_file and key_file"),
        ({"listen": "x", "no_tls": True}, "listen: not accepted"),
    ],
)
def test_wrong_settings_are_told(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        read_websocket(from_plain(table, "websocket", ""))


def test_the_settings_of_a_file() -> None:
    table = {
        "listen": "127.0.0.1:8080",
        "no_tls": True,
        "same_origin": True,
        "allowed_origins": ["http://a"],
        "compression": True,
        "handshake_timeout": 3,
    }
    assert read_websocket(from_plain(table, "websocket", "")) == WebSocketOptions(
        port=8080,
        host="127.0.0.1",
        same_origin=True,
        allowed_origins=("http://a",),
        compression=True,
        handshake_timeout=3,
    )
    assert read_websocket(from_plain({"compression": True}, "websocket", "")) is None


def test_without_the_extra_the_listener_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    async def start() -> None:
        await broker().start()

    monkeypatch.setitem(sys.modules, "websockets.server", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'headrace\[websocket\]'"):
        asyncio.run(start())


async def test_a_websocket_of_tiny_frames_is_taken_apart_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peers.package("websockets")
    async with (
        Broker(websocket=WebSocketOptions(port=0)) as broker,
        connect(broker.client_url) as good,
    ):
        url = broker.websocket_url
        assert url is not None
        slices = broker._pump.slices  # type: ignore[union-attr]
        answers = cycle([False, True])  # a slice is over after one piece
        monkeypatch.setattr(slices, "is_used_up", lambda: next(answers))
        asked = 0
        real = slices.ask

        def ask(guest: object) -> None:
            nonlocal asked
            asked += 1
            real(guest)  # type: ignore[arg-type]

        monkeypatch.setattr(slices, "ask", ask)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write(UPGRADE + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        flood = frame(CONNECT) + frame(b"", 9) * 6_000 + frame(b"SUB a 1\r\n") + frame(b"PI")
        writer.write(flood + frame(b"NG\r\n"))
        await good.flush()
        await reader.readuntil(b"PONG\r\n")
        assert asked >= (36_000 - 16 * 1024) // (4 * 1024)
        (session,) = [s for s in broker.hub.sessions.values() if s.peer.transport == "websocket"]
        assert len(session.subscriptions) == 1
        writer.close()
