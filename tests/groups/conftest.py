"""What the tests of groups share: both servers in turn, a connection, streams that go with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

import peers
from headrace.client import Connection, JetStream, connect


@pytest.fixture(scope="session", params=["nats-server", "headrace"])
def reference_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Both servers in turn: whatever is tried here works on either."""
    directory = tmp_path_factory.mktemp(f"groups-{request.param}")
    start = peers.start_headrace if request.param == "headrace" else peers.start_nats_server
    server = start(directory)
    yield server
    server.stop()


@pytest.fixture
async def connection(reference_server: peers.ServerProcess) -> AsyncIterator[Connection]:
    async with connect(reference_server.url, name="tests of groups") as connection:
        yield connection


@pytest.fixture
async def js(connection: Connection) -> AsyncIterator[JetStream]:
    """A context in an account that is empty before and after the test."""
    js = connection.jetstream()
    yield js
    async for info in js.streams():
        await js.delete_stream(info.config.name)
