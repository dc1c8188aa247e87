"""Options of a connection, each by what it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
import peers
from headrace import connect
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.server import Broker, User
from headrace.client.events import (
    Closed,
    Connected,
    Disconnected,
    ErrorEvent,
    Event,
    LameDuck,
    Reconnected,
)
from headrace.errors import (
    BufferFullError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
    ServerError,
)
from headrace.subjects import SubjectFilter
from listening import Listening
from waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that greets, and then says nothing more."""
    writer.write(b'INFO {"headers":true}\r\n')
    await reader.readuntil(b"PING\r\n")
    writer.write(b"PONG\r\n")
    await reader.read()


async def test_replies_come_below_the_inbox_prefix_permitted() -> None:
    mine = Permissions(subscribe_allow=SubjectFilter([b"_MINE.>"]))
    async with Broker(port=-1, users=(User("u", "p", permissions=mine),)) as broker:
        login: dict[str, Any] = {"user": "u", "password": "p"}
        async with connect(broker.client_url, inbox_prefix="_MINE.u", **login) as connection:
            assert connection.new_inbox().startswith("_MINE.u.")
            js = connection.jetstream()
            stream = await js.create_stream(name="S", subjects=["s"])
            async with js.publisher() as publisher:
                await publisher.send("s", b"x")
            consumer = await stream.create_consumer(durable_name="c")
            assert (await consumer.fetch(1)).payloads == [b"x"]
        async with connect(broker.client_url, **login) as connection:
            with pytest.raises(ServerError, match="inbox_prefix"):
                await connection.jetstream().account_info()


RESTRICTED = {
    "nats-server": (
        'authorization { users: [ { user: u, password: p, permissions: { subscribe: "_MINE.>" } } ] }'
    ),
    "headrace": (
        '[[users]]\nuser = "u"\npassword = "p"\n[users.permissions]\nsubscribe = "_MINE.>"'
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("kind", RESTRICTED)
async def test_an_inbox_that_is_not_permitted_is_told_once_whatever_asks(
    tmp_path: Path, kind: str
) -> None:
    start = peers.start_headrace if kind == "headrace" else peers.start_nats_server
    server = start(tmp_path, config=RESTRICTED[kind])
    try:
        events: list[Event] = []
        async with connect(
            server.url, user="u", password="p", on_event=events.append
        ) as connection:
            js = connection.jetstream()
            for ask in (lambda: connection.request("a"), js.account_info, js.account_info):
                with pytest.raises(ServerError) as caught:
                    await ask()
                said = str(caught.value)
                assert said.lower().startswith('permissions violation for subscription to "_inbox.')
                assert said.endswith(
                    '*"; replies need a permitted subject, see option inbox_prefix'
                )
                assert len(said.split(";")) == 2
            assert [type(event) for event in events] == [Connected]  # who asked was told
            inbox = await connection.subscribe(
                connection.new_inbox()
            )  # as publishers and readers do
            await until(lambda: len(events) == 2, "nobody was told", within=30)
            assert isinstance(events[1], ErrorEvent)
            told = str(events[1].error)
            assert f'"{inbox.subject}"; replies need a permitted subject, see option' in told
            assert len(told.split(";")) == 2
            await connection.subscribe("elsewhere")  # which no option mends
            await until(lambda: len(events) == 3, "nobody was told", within=30)
            assert isinstance(events[2], ErrorEvent)
            assert str(events[2].error).endswith('to "elsewhere"')
    finally:
        server.stop()


def test_an_inbox_prefix_that_cannot_be_is_told_once() -> None:
    for prefix in ("", "a.*", "a b", "a..b"):
        with pytest.raises(ConfigurationError) as caught:
            headrace.Options(inbox_prefix=prefix)
        assert str(caught.value) == (
            f"option inbox_prefix is {prefix!r}; accepted: a subject without wildcards of at most "
            "512 bytes, as _INBOX"
        )


async def test_without_echo_one_does_not_hear_oneself() -> None:
    async with (
        Broker(port=-1) as broker,
        connect(broker.client_url, echo=False) as quiet,
        connect(broker.client_url) as other,
    ):
        own, heard = await quiet.subscribe("x"), await other.subscribe("x")
        await other.flush()
        await quiet.publish("x", b"1")
        assert (await heard.next(2)).payload == b"1"
        await quiet.flush()
        assert own.pending_messages == 0


async def test_a_first_connection_may_wait_for_its_server(free_port: int) -> None:
    url = f"nats://127.0.0.1:{free_port}"
    with pytest.raises(ConnectFailedError):
        await connect(url)
    fast: dict[str, Any] = {"reconnect_wait": 0.01, "reconnect_wait_max": 0.02}
    tried = asyncio.Semaphore(0)

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.release()

    async with Listening(hang_up, free_port):
        connecting = asyncio.ensure_future(_opened(url, retry_first_connect=True, **fast))
        async with asyncio.timeout(10):
            for _ in range(3):
                await tried.acquire()
        assert not connecting.done()
    async with Broker(port=free_port):
        connection = await asyncio.wait_for(connecting, 5)
        await connection.flush()
        await connection.close()
    with pytest.raises(ConnectFailedError, match="given up after 3 attempts"):
        await connect(url, retry_first_connect=True, max_reconnect_attempts=3, **fast)


async def _opened(url: str, **options: Any) -> headrace.Connection:
    return await connect(url, **options)


async def test_servers_are_tried_in_the_order_given_if_so_asked(free_port: int) -> None:
    async with Broker(port=-1) as first, Broker(port=-1) as second:
        nobody = f"nats://127.0.0.1:{free_port}"
        urls = [nobody, second.client_url, first.client_url]
        async with connect(urls, randomize_servers=False) as connection:
            assert connection.server == second.client_url
            assert connection.servers == urls


async def test_a_lame_duck_is_announced_and_left_for_another() -> None:
    events: list[Event] = []
    async with Broker(port=-1) as second:
        first = Broker(port=-1)
        await first.start()
        async with connect(
            [first.client_url, second.client_url],
            randomize_servers=False,
            reconnect_wait=0.005,
            on_event=events.append,
        ) as connection:
            first.announce_stop()
            await until(lambda: LameDuck(first.client_url) in events)
            await first.stop()
            await until(lambda: connection.reconnects)
            assert connection.server == second.client_url
            await connection.flush()
        kinds = [type(event) for event in events if not isinstance(event, ErrorEvent)]
        assert kinds == [Connected, LameDuck, Disconnected, Reconnected, Closed]


async def test_everyone_who_iterates_the_events_gets_all_of_them() -> None:
    async with Broker(port=-1) as broker:
        connection = await connect(broker.client_url, reconnect_wait=0.005)

        async def read() -> list[type[Event]]:
            return [type(event) async for event in connection.events()]

        readers = [asyncio.ensure_future(read()) for _ in range(2)]
        await asyncio.sleep(0)
        assert connection._session.link is not None
        connection._session.link.abort(ConnectionClosedError("by the test"))
        await until(lambda: connection.reconnects)
        await connection.close()
        for reader in readers:
            assert await reader == [Disconnected, Reconnected, Closed]


async def test_a_drain_gives_up_on_who_does_not_take_its_messages() -> None:
    events: list[Event] = []
    async with Broker(port=-1) as broker:
        connection = await connect(broker.client_url, drain_timeout=0.1, on_event=events.append)
        await connection.subscribe("x")
        await connection.publish("x")
        await connection.flush()
        await asyncio.wait_for(connection.drain(), 5)
        assert connection.is_closed
        (late,) = [e.error for e in events if isinstance(e, ErrorEvent)]
        assert isinstance(late, TimeoutError)
        assert "after 0.1 s (option drain_timeout): 1 message(s) were not taken: <Subscr" in str(
            late
        )
        with pytest.raises(ConnectionClosedError):
            await connection.drain()


async def test_a_drain_gives_up_on_a_server_that_is_silent_and_says_so() -> None:
    events: list[Event] = []
    async with Listening(deaf) as server:
        connection = await connect(server.url, drain_timeout=0.1, on_event=events.append)
        await connection.drain()
        assert connection.is_closed
        (late,) = [e.error for e in events if isinstance(e, ErrorEvent)]
        assert isinstance(late, headrace.RequestTimeoutError)
        told = "drain gave up after 0.1 s (option drain_timeout): the server was silent"
        assert str(late) == told
        assert f"TimeoutError({told!r})" in str(
            next(e for e in events if isinstance(e, ErrorEvent))
        )


async def test_a_flush_that_is_not_answered_times_out() -> None:
    async with Listening(deaf) as server, connect(server.url) as connection:
        with pytest.raises(TimeoutError, match=r"did not answer a PING within 0\.05 s"):
            await connection.flush(0.05)


async def test_pings_that_go_unanswered_end_the_link() -> None:
    events: list[Event] = []

    async with Listening(deaf) as server:
        connection = await connect(
            server.url,
            ping_interval=0.02,
            max_pings_out=3,
            reconnect=False,
            on_event=events.append,
        )
        await until(lambda: connection.is_closed)
        assert "3 pings went unanswered" in str(events[-1].reason)  # type: ignore[attr-defined]
        await connection.close()


async def test_nothing_is_buffered_while_disconnected_if_so_asked(free_port: int) -> None:
    broker = Broker(port=free_port)
    await broker.start()
    options: dict[str, Any] = {
        "reconnect_wait": 0.005,
        "reconnect_wait_max": 0.01,
        "reconnect_buffer_bytes": 0,
    }
    async with connect(broker.client_url, **options) as connection:
        await broker.stop()
        await until(lambda: not connection.is_connected)
        with pytest.raises(BufferFullError, match="reconnect_buffer_bytes allows 0"):
            await connection.publish("x")
        async with Broker(port=free_port):
            await until(lambda: connection.is_connected)
            await connection.publish("x")
            await connection.flush()


@pytest.mark.peer
async def test_the_servers_of_a_cluster_are_discovered_and_used(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    routes = [peers.free_port(), peers.free_port()]
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    servers = [
        nats_server(
            jetstream=False,
            config=f'server_name: n{port}\ncluster {{ name: c, host: "127.0.0.1", port: {port}, '
            f"routes: [{urls}] }}",
        )
        for port in routes
    ]
    first, second = servers
    fast: dict[str, Any] = {"reconnect_wait": 0.01, "reconnect_wait_max": 0.02}
    async with connect(first.url, **fast) as connection:
        await until(lambda: second.url in connection.servers)
        subscription = await connection.subscribe("x")
        await connection.flush()
        await asyncio.to_thread(first.kill)
        await until(lambda: connection.reconnects)
        assert connection.server == second.url
        await connection.publish("x", b"again")
        assert (await subscription.next(2)).payload == b"again"
    async with connect(second.url, discover_servers=False) as alone:
        assert alone.servers == [second.url]
    await asyncio.get_running_loop().shutdown_default_executor()
