"""One of the servers, and a bucket of a test's own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

import chaos
import peers
from headrace.client import KeyValue, connect
from portions import play_one_way

_numbers = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; ``make test-all`` plays all tests of locks on
    both."""
    play_one_way(metafunc, "reference_server", peers.EITHER)


@pytest.fixture(scope="session")
def reference_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Either server: whatever is tried here works on both."""
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
