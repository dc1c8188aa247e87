"""Links that are refused, moved and lost: what ends the connection and what must not."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any

import pytest

import peers
from headrace.client import Connection, connect
from headrace.client.events import Disconnected, ErrorEvent, Event, Reconnected
from headrace.client.net.handshake import parse_server, server_error
from headrace.client.net.link import _tls
from headrace.client.net.options import Options
from headrace.client.net.servers import ServerPool
from headrace.errors import (
    AuthorizationError,
    ConnectFailedError,
    ConnectionClosedError,
    HeadraceError,
    ServerError,
)
from listening import Listening, Serve
from waiting import elapse

pytestmark = pytest.mark.usefixtures("no_leaks")

INFO = b'INFO {"server_id":"X","headers":true,"max_payload":1000}\r\n'


async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(INFO)
    await reader.readuntil(b"PING\r\n")
    writer.write(b"PONG\r\n")


@pytest.mark.parametrize(
    "text",
    [
        "Authorization Violation",
        "User Authentication Expired",
        "User Authentication Revoked",
        "Account Authentication Expired",
    ],
)
def test_refused_credentials_are_an_authorization_error(text: str) -> None:
    assert isinstance(server_error(text), AuthorizationError)


async def test_a_server_too_busy_for_our_credentials_is_tried_again() -> None:
    """A handshake that took too long says nothing of the credentials, as when many return at once."""
    assert isinstance(server_error("Authentication Timeout"), ServerError)
    came = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        if 1 < came < 5:
            writer.write(INFO + b"-ERR 'Authentication Timeout'\r\n")
            return
        await welcome(reader, writer)
        if came == 1:
            return
        await reader.read()

    back = asyncio.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, Reconnected):
            back.set()

    async with (
        Listening(serve) as server,
        connect(server.url, user="u", password="p", reconnect_wait=0.01, on_event=on_event),
    ):
        await asyncio.wait_for(back.wait(), 5)
    assert came == 5


async def test_an_old_error_is_not_taken_for_the_reason_of_a_loss() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        writer.write(b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n")
        await reader.readuntil(b"PING\r\n")

    events: list[Event] = []
    async with Listening(serve) as server:
        connection = await connect(server.url, on_event=events.append, reconnect_wait=5)
        with pytest.raises(HeadraceError):
            await connection.flush(2)
        lost = [event for event in events if isinstance(event, Disconnected)]
        assert [type(event) for event in events if isinstance(event, ErrorEvent)] == [ErrorEvent]
        assert "Permissions" not in str(lost[0].reason)
        await connection.close()


async def test_a_request_that_is_not_permitted_fails_at_once_and_says_so(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(
        config="""authorization { users = [ { user: u, password: p, permissions: {
        publish: ["ok"], subscribe: ["_INBOX_u.>", "ok"] } } ] }"""
    )
    options = {"user": "u", "password": "p", "on_event": lambda event: None}
    async with connect(server.url, inbox_prefix="_INBOX_u", **options) as connection:  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            with pytest.raises(ServerError, match='Publish to "secret"'):
                await connection.request("secret", timeout=60)
    async with connect(server.url, **options) as connection:  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            with pytest.raises(ServerError, match="inbox_prefix"):
                await connection.request("ok", timeout=60)


# Servers that others tell of


def pool_of(*urls: str) -> ServerPool:
    return ServerPool(
        [parse_server(url) for url in urls],
        randomize=False,
        max_attempts=-1,
        random=random.Random(1),
    )


def test_a_discovered_address_keeps_the_name_the_certificate_is_for() -> None:
    pool = pool_of("tls://nats.example.org:4222")
    (first,) = pool.addresses
    pool.discover(["10.0.0.2:4222", "other.example.org:4222"], first)
    new = pool.addresses[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    names = [_tls(address, Options(tls=context))[1] for address in new]
    assert names == ["nats.example.org", "other.example.org"]
    pool.discover(["10.0.0.2:4222", "10.0.0.3:4222"], new[0])
    assert _tls(pool.addresses[-1], Options(tls=context))[1] == "nats.example.org"


def test_a_discovered_server_has_the_credentials_of_the_one_that_told_of_it() -> None:
    pool = pool_of("nats://a:x@one:4222", "nats://b:y@two:4222")
    pool.discover(["10.0.0.2:4222"], pool.addresses[1])
    assert pool.addresses[-1].credentials.user == "b"


def test_discovered_servers_that_left_are_forgotten_given_ones_never() -> None:
    pool = pool_of("nats://one:4222")
    (first,) = pool.addresses
    pool.discover(["10.0.0.2:4222", "10.0.0.3:4222"], first)
    current = pool.addresses[1]
    pool.discover(["10.0.0.4:4222"], current)
    assert [address.host for address in pool.addresses] == ["one", "10.0.0.2", "10.0.0.4"]
    pool.discover([], first)  # an INFO that tells of none
    assert len(pool) == 3
    assert [pool.next().host for _ in range(3)] == ["one", "10.0.0.2", "10.0.0.4"]  # type: ignore[union-attr]


# Beginning and end


async def test_closing_that_is_cancelled_leaves_no_socket() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await welcome(reader, writer)
        await asyncio.Event().wait()  # and reads no more

    async with Listening(serve) as server:
        connection: Connection = await connect(server.url)
        for _ in range(16_000):
            connection.publish_nowait("a", bytes(1000))
        closing = asyncio.ensure_future(connection.close())
        await elapse(0.05, "it waits for somebody who reads no more")
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await asyncio.sleep(0)
        assert connection.is_closed
        with pytest.raises(ConnectionClosedError):
            connection.publish_nowait("a")


@pytest.mark.parametrize(
    ("options", "serve", "hint"),
    [
        ({"tls": True, "tls_first": True}, welcome, "tls_first"),
        ({"connect_timeout": 0.1}, None, "tls_first"),
    ],
)
async def test_a_tls_handshake_that_cannot_succeed_names_the_option(
    options: dict[str, Any], serve: Serve | None, hint: str
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Listening(serve or silent) as server:
        with pytest.raises(ConnectFailedError, match=hint):
            await connect(server.url, **options)
