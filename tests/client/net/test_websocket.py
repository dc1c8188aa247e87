"""The client through WebSockets: what works over TCP works here, too."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import chaos
import peers
from certificates import self_signed
from headrace import connect
from headrace.client.events import Event, Reconnected
from headrace.client.net.handshake import parse_server
from headrace.errors import AuthorizationError, ConfigurationError, ConnectFailedError
from listening import HOST, Listening
from waiting import until


@pytest.fixture(scope="module", params=["nats-server", "headrace"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The WebSocket port of either server."""
    port = peers.free_port()
    directory = tmp_path_factory.mktemp("ws")
    config = f'websocket {{ host: "127.0.0.1", port: {port}, no_tls: true }}\nmax_payload: 8MB'
    if request.param == "headrace":
        file = directory / "nats.conf"
        file.write_text(config)
        server = peers.start_headrace(directory, flags=["-c", str(file)])
    else:
        server = peers.start_nats_server(directory, config=config)
    yield port
    server.stop()


@pytest.mark.parametrize(
    ("url", "shown", "number", "path"),
    [
        ("ws://h", "ws://h:80", 80, ""),
        ("wss://h", "wss://h:443", 443, ""),
        ("ws://u:p@[::1]:8080/", "ws://[::1]:8080", 8080, ""),
        ("wss://h:1/nats/ws", "wss://h:1", 1, "/nats/ws"),
    ],
)
def test_urls_of_websockets(url: str, shown: str, number: int, path: str) -> None:
    address = parse_server(url)
    assert address.websocket
    assert (str(address), address.port, address.path) == (shown, number, path)


@pytest.mark.peer
@pytest.mark.usefixtures("no_leaks")
async def test_messages_streams_and_large_payloads(port: int) -> None:
    async with connect(f"ws://127.0.0.1:{port}") as connection, asyncio.timeout(20):
        assert connection.server == f"ws://127.0.0.1:{port}"
        heard = await connection.subscribe("a.>")
        large = bytes(range(256)) * 4 * 1024 * 7
        for payload in (b"", b"x", large):
            await connection.publish("a.b", payload, headers={"H": "v"})
        assert [(await heard.next(5)).payload for _ in range(3)] == [b"", b"x", large]
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"], storage="memory")
        async with js.publisher(window=1_000) as publisher:
            await publisher.send_many(("s", b"%d" % n) for n in range(20_000))
        consumer = await stream.create_consumer(durable_name="c", max_ack_pending=-1)
        seen: list[bytes] = []
        async with consumer.consume() as messages:
            async for message in messages:
                seen.append(message.payload)
                message.ack()
                if len(seen) == 20_000:
                    break
        assert seen == [b"%d" % n for n in range(20_000)]
        await stream.delete()
        await connection.drain()


@pytest.mark.peer
@pytest.mark.usefixtures("no_leaks")
async def test_a_broken_websocket_is_restored(port: int) -> None:
    events: list[Event] = []
    async with chaos.ChaosProxy("127.0.0.1", port) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}"
        options: dict[str, Any] = {
            "reconnect_wait": 0.005,
            "reconnect_wait_max": 0.01,
            "discover_servers": False,
        }
        async with connect(url, on_event=events.append, **options) as connection:
            heard = await connection.subscribe("again")
            await connection.flush()

            def reached(number: int) -> bool:
                return connection.reconnects >= number

            for number in range(1, 6):
                proxy.reset()
                await until(partial(reached, number), within=5)
                await connection.publish("again", b"%d" % number)
                assert (await heard.next(5)).payload == b"%d" % number
    assert sum(isinstance(event, Reconnected) for event in events) == 5


@pytest.mark.peer
@pytest.mark.usefixtures("no_leaks")
async def test_a_server_without_websockets_is_told_apart(
    reference_server: peers.ServerProcess,
) -> None:
    with pytest.raises(ConnectFailedError, match=r"ws://.*"):
        await connect(f"ws://127.0.0.1:{reference_server.port}", connect_timeout=1)
    async with Listening(_refuse) as refusing:
        with pytest.raises(ConnectFailedError, match="HTTP 404"):
            await connect(f"ws://{HOST}:{refusing.port}")


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "websockets.client", None)
    with pytest.raises(ConfigurationError, match=r"headrace\[websocket\]"):
        await connect("ws://127.0.0.1:1")


@pytest.mark.peer
@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("kind", ["nats-server", "headrace"])
async def test_tls_and_a_login(
    tmp_path: Path,
    kind: str,
    nats_server: Callable[..., peers.ServerProcess],
    headrace_server: Callable[..., peers.ServerProcess],
) -> None:
    certificate, key = self_signed(tmp_path)
    port = peers.free_port()
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    config = f'websocket {{ host: "127.0.0.1", port: {port}, {tls} }}\n'
    config += "authorization { user: u, password: p }"
    if kind == "headrace":
        (tmp_path / "nats.conf").write_text(config)
        headrace_server(flags=["-c", str(tmp_path / "nats.conf")])
    else:
        nats_server(config=config)
    trusted = ssl.create_default_context(cafile=str(certificate))
    async with connect(f"wss://u:p@127.0.0.1:{port}", tls=trusted) as connection:
        await connection.flush()
        assert connection.server == f"wss://127.0.0.1:{port}"
    async with connect(f"ws://127.0.0.1:{port}", tls=trusted, user="u", password="p") as connection:
        await connection.flush()
    with pytest.raises(AuthorizationError):
        await connect(f"wss://u:wrong@127.0.0.1:{port}", tls=trusted)
    with pytest.raises(ConnectFailedError, match="certificate refused"):
        await connect(f"wss://u:p@127.0.0.1:{port}")
