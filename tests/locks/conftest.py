"""Both servers in turn, and a bucket of a test's own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

import chaos
import peers
from headrace.client import KeyValue, connect

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=peers.EITHER)
def reference_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Both servers in turn: whatever is tried here works on either."""
    yield from peers.either_running(request.param, tmp_path_factory.mktemp("locks"))


@pytest.fixture
async def bucket(reference_server: peers.ServerProcess) -> AsyncIterator[KeyValue]:
    async with connect(reference_server.url) as connection:
        js = connection.jetstream()
        name = f"LOCKS{next(_numbers)}"
        yield await js.create_key_value(name, marker_ttl=60, storage="memory")
        await js.delete_key_value(name)


@pytest.fixture
async def proxy(reference_server: peers.ServerProcess) -> AsyncIterator[chaos.ChaosProxy]:
    async with chaos.ChaosProxy(reference_server.host, reference_server.port) as proxy:
        yield proxy
