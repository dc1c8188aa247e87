"""One of the servers, a connection, a stream of a test's own, and a PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

import peers
import postgres_server
from headrace.client import JetStream, Stream, connect
from portions import play_one_way

_numbers = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; ``make test-all`` plays all tests here on
    both."""
    play_one_way(metafunc, "reference_server", peers.EITHER)


@pytest.fixture(scope="session")
def reference_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Either server: whatever is tried here works on both."""
    yield from peers.either_running(request.param, tmp_path_factory.mktemp("worker"))


@pytest.fixture
async def js(reference_server: peers.ServerProcess) -> AsyncIterator[JetStream]:
    async with connect(reference_server.url, name="tests of workers") as connection:
        yield connection.jetstream()


@pytest.fixture
async def stream(js: JetStream) -> AsyncIterator[Stream]:
    """A stream with the subjects ``<its name>.>``, in memory, gone after the test."""
    name = f"W{next(_numbers)}"
    stream = await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    yield stream
    await stream.delete()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The address of a database server, where it is installed."""
    server = postgres_server.PostgresServer()
    try:
        server.start()
        yield server.url()
    finally:
        server.remove()
