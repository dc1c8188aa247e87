"""An application behind the limits of every HTTP server (`headrace.web.asgi`): half-open requests, heads
without end and handshakes that never finish are cut off, and keep nobody else from being served.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from certificates import self_signed
from headrace.web.asgi import AsgiServer
from headrace.web.connections import ConnectionLimits
from late_comers import TURNS, is_hung_up_on

HALF_A_HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\n"
HALF_A_BODY = HALF_A_HEAD + b"Content-Length: 10\r\n\r\n12345"
WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def reads_its_body(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["path"] != "/refused":
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message.get("more_body", False)
    if scope["path"] == "/slow":
        scope["app.arrived"].release()
        assert (await receive())["type"] == "http.disconnect"
        return
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})


@contextlib.asynccontextmanager
async def serving(
    connections_max: int,
    arrived: asyncio.Semaphore | None = None,
    tls: ssl.SSLContext | None = None,
    **limits: float,
) -> AsyncIterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await reads_its_body({**scope, "app.arrived": arrived}, receive, send)

    server = AsgiServer(app, ConnectionLimits(connections_max, **limits), tls=tls)  # type: ignore[arg-type]
    listener = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def opened(cls, port: int, said: bytes) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.say(said)
        return client

    def say(self, said: bytes) -> None:
        self._writer.write(said)

    async def status(self) -> int:
        """The status of the next answer; 0 when the connection was closed instead."""
        try:
            async with asyncio.timeout(10):
                head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        return int(head.split(b" ")[1])

    def close(self) -> None:
        self._writer.transport.abort()


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("is_secure", [False, True])
async def test_whoever_is_accepted_while_a_server_ends_is_hung_up_on(
    turns: int, is_secure: bool, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    context = tls[0] if is_secure else None
    server = AsgiServer(reads_its_body, ConnectionLimits(5), tls=context)  # type: ignore[arg-type]
    server.lifespan = server.config.lifespan_class(server.config)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await server.startup([listener])
    assert await is_hung_up_on(port, turns, server.shutdown)


@pytest.mark.parametrize("half", [b"", HALF_A_HEAD, HALF_A_BODY], ids=["silent", "head", "body"])
async def test_whoever_waits_longest_makes_room_for_a_whole_request(half: bytes) -> None:
    async with serving(20) as port:
        hostile = [await Client.opened(port, half) for _ in range(60)]
        for _ in range(3):
            good = await Client.opened(port, WHOLE)
            assert await good.status() == 200
            good.close()
        assert await hostile[0].status() == 0
        for client in hostile:
            client.close()


async def test_where_every_connection_has_its_request_one_more_is_told_so() -> None:
    arrived = asyncio.Semaphore(0)
    async with serving(3, arrived) as port:
        busy = [await Client.opened(port, WHOLE.replace(b"/", b"/slow", 1)) for _ in range(3)]
        for _ in busy:
            await arrived.acquire()
        good = await Client.opened(port, WHOLE)
        assert await good.status() == 503
        for client in [*busy, good]:
            client.close()


@pytest.mark.parametrize(
    ("said", "times"),
    [
        (b"", {"head_s": 0.2, "body_s": 60.0}),
        (HALF_A_HEAD, {"head_s": 0.2, "body_s": 60.0}),
        (HALF_A_BODY, {"head_s": 60.0, "body_s": 0.2}),
    ],
    ids=["silent", "head", "body"],
)
async def test_what_does_not_arrive_in_time_is_cut_off(said: bytes, times: dict[str, Any]) -> None:
    async with serving(20, **times) as port:
        client = await Client.opened(port, said)
        assert await client.status() == 0
        client.close()


async def test_a_body_that_goes_on_after_its_refusal_keeps_no_connection_for_ever() -> None:
    async with serving(20, head_s=0.2, body_s=60.0) as port:
        client = await Client.opened(port, HALF_A_BODY.replace(b"/x", b"/refused"))
        assert await client.status() == 200
        client.say(b"67890")
        assert await client.status() == 0
        client.close()


async def test_a_kept_connection_serves_one_request_after_the_other() -> None:
    async with serving(20) as port:
        client = await Client.opened(port, WHOLE * 3)
        assert [await client.status() for _ in range(3)] == [200, 200, 200]
        client.say(HALF_A_BODY)
        client.say(b"67890")
        assert await client.status() == 200
        client.close()


async def test_a_head_that_never_ends_is_refused_at_its_limit() -> None:
    async with serving(20, head_bytes_max=4096) as port:
        for endless in (
            b"GET /" + b"x" * 70_000,
            b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000,
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 12_000,
        ):
            client = await Client.opened(port, endless[:10_000])
            for begin in range(10_000, len(endless), 10_000):
                await asyncio.sleep(0)
                client.say(endless[begin : begin + 10_000])
            assert await client.status() in (0, 431)  # 0: it went on talking, and was reset
            client.close()


async def test_a_whole_head_beyond_the_limit_is_answered_431() -> None:
    async with serving(20, head_bytes_max=4096) as port:
        client = await Client.opened(port, b"GET / HTTP/1.1\r\nX: " + b"y" * 5000 + b"\r\n\r\n")
        assert await client.status() == 431
        assert await client.status() == 0
        client.close()
        good = await Client.opened(port, b"GET / HTTP/1.1\r\nX: " + b"y" * 4000 + b"\r\n\r\n")
        assert await good.status() == 200
        good.close()


async def test_the_body_before_a_head_is_not_counted_as_head() -> None:
    body = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + b"z" * 100_000
    async with serving(20, head_bytes_max=4096) as port:
        client = await Client.opened(port, body + HALF_A_HEAD)
        assert await client.status() == 200
        client.say(b"Content-Length: 0\r\n\r\n" + body)
        assert [await client.status(), await client.status()] == [200, 200]
        client.close()


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server and of a client that trusts it."""
    certificate, key = self_signed(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


async def test_handshakes_that_never_finish_are_cut_off_and_keep_nobody_out(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    async with serving(20, tls=tls[0], handshake_s=60.0) as port:
        silent = [await Client.opened(port, b"") for _ in range(60)]
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls[1])
            good = Client(reader, writer)
            good.say(WHOLE)
            assert await good.status() == 200
            good.close()
        assert await silent[0].status() == 0
        for client in silent:
            client.close()
    async with serving(20, tls=tls[0], handshake_s=0.2) as port:
        silent = [
            await Client.opened(port, said)
            for said in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n")
        ]
        assert [await client.status() for client in silent] == [0, 0, 0]
        for client in silent:
            client.close()


async def test_what_comes_with_the_end_of_the_handshake_is_answered(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """The client's last words of the handshake and its request in one segment."""
    async with serving(20, tls=tls[0]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = tls[1].wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65_536))
        client.write(WHOLE)
        writer.write(outgoing.read())
        answered = b""
        while b"200 OK" not in answered:
            try:
                answered += client.read()
            except ssl.SSLWantReadError:
                incoming.write(await asyncio.wait_for(reader.read(65_536), 10))
        writer.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_handshake_that_begins_at_once_is_heard_on_either_loop(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """uvloop reads before it is told not to: what came by then is the beginning of the handshake."""

    async def ask() -> None:
        async with serving(20, tls=tls[0], handshake_s=60.0) as port:
            for _ in range(30):
                async with asyncio.timeout(20):
                    # Its first words are there before the server looks at the connection.
                    with socket.create_connection(("127.0.0.1", port)) as wire:
                        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                        client = tls[1].wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
                        with contextlib.suppress(ssl.SSLWantReadError):
                            client.do_handshake()
                        wire.sendall(outgoing.read())
                        wire.setblocking(False)
                        running = asyncio.get_running_loop()
                        assert await running.sock_recv(wire, 65_536)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask())
