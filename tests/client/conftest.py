"""What the client's tests share: a connection, and a stream of their own, on the reference server."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import peers
from headrace.client import Connection, Consumer, JetStream, Stream, connect
from headrace.embedded import Broker
from portions import play_one_way
from waiting import until

_numbers = itertools.count(1)


# All of it through WebSockets, on demand.
SERVERS = ("websocket",) if os.environ.get("HEADRACE_TEST_WEBSOCKET") else peers.EITHER


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; what the client makes of it, half of the
    tests try on either, and ``make test-all`` all on both."""
    play_one_way(metafunc, "reference_server", SERVERS)


@pytest.fixture(scope="session")
def reference_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Either server: whatever is tried here works on both."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "websocket":
        port = peers.free_port()
        listener = f'websocket {{ host: "127.0.0.1", port: {port}, no_tls: true }}'
        server = peers.start_nats_server(directory, config=listener)
        server.port, server.scheme = port, "ws"
    else:
        server = peers.start_either(request.param, directory)
    yield server
    server.stop()


@pytest.fixture
async def connection(reference_server: peers.ServerProcess) -> AsyncIterator[Connection]:
    async with connect(reference_server.url, name="tests") as connection:
        yield connection


@pytest.fixture
def js(connection: Connection) -> JetStream:
    return connection.jetstream()


@pytest.fixture
async def stream(js: JetStream) -> AsyncIterator[Stream]:
    """A stream with the subject ``<its name>.>``, in memory, gone after the test."""
    name = f"T{next(_numbers)}"
    stream = await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    yield stream
    if not js.connection.is_closed:
        await stream.delete()


@pytest.fixture
def ack_pending() -> Callable[[Consumer, int], Awaitable[None]]:
    """Wait until so many messages are unacknowledged: acks are processed after their own fashion."""

    async def wait(consumer: Consumer, expected: int) -> None:
        async def is_so() -> bool:
            return (await consumer.info()).num_ack_pending == expected

        await until(is_so, f"never {expected} unacknowledged", within=5)

    return wait


@pytest.fixture
async def quick_broker(quick_path: Path) -> AsyncIterator[Broker]:
    """Our broker inside the test's own loop, without a disk behind it."""
    async with Broker(store_dir=quick_path / "broker") as broker:
        yield broker


@pytest.fixture
async def calm(quick_broker: Broker) -> AsyncIterator[JetStream]:
    """A context on a connection that is not lost."""
    async with quick_broker.connect() as connection:
        yield connection.jetstream()
