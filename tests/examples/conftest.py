"""Each example on one of the servers, half of them on either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

import chaos
import peers
import postgres_server
from headrace.client import JetStream, connect
from portions import play_one_way


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; ``make test-all`` plays all examples on
    both."""
    play_one_way(metafunc, "reference_server", peers.EITHER)


@pytest.fixture(scope="session")
def reference_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Either server: whatever is tried here works on both."""
    yield from peers.either_running(request.param, tmp_path_factory.mktemp("examples"))


@pytest.fixture
async def js(reference_server: peers.ServerProcess) -> AsyncIterator[JetStream]:
    """The server is empty before and after the test."""
    async with connect(reference_server.url, name="tests of examples") as connection:
        js = connection.jetstream()
        yield js
        for name in [name async for name in js.stream_names()]:
            await js.delete_stream(name)


@pytest.fixture
async def proxy(reference_server: peers.ServerProcess) -> AsyncIterator[chaos.ChaosProxy]:
    async with chaos.ChaosProxy(reference_server.host, reference_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The address of a database server, where it is installed."""
    server = postgres_server.PostgresServer()
    try:
        server.start()
        yield server.url()
    finally:
        server.remove()
