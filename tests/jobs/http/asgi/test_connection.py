"""Half-open requests: they are cut off in time, and keep nobody else from being served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from headrace.jobs.http.asgi.connection import make_protocol

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
    connections_max: int, arrived: asyncio.Semaphore | None = None, **times: float
) -> AsyncIterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await reads_its_body({**scope, "app.arrived": arrived}, receive, send)

    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        lifespan="off",
        http=make_protocol(connections_max, **times),
        limit_concurrency=connections_max + 1,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=0,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
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
