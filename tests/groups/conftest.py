"""What the tests of groups share: one of the servers, a connection, streams that go with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import pytest

import peers
from headrace.client import Connection, JetStream, connect
from headrace.testing import Link
from portions import play_one_way
from waiting import until

KEPT: Final = "KEPT"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; what a group makes of
    it, half of the tests try on either, and ``make test-all`` all on both."""
    play_one_way(metafunc, "reference_server", peers.EITHER)


@pytest.fixture(scope="session")
def reference_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Either server: whatever is tried here works on both."""
    yield from peers.either_running(request.param, tmp_path_factory.mktemp("groups"))


@pytest.fixture
def round_trip_s(request: pytest.FixtureRequest) -> float:
    """How far the server is; tests of takeovers ask for another one (``distances.NEAR_AND_FAR``)."""
    return float(getattr(request, "param", 0.0))


@pytest.fixture
def server_url(reference_server: peers.ServerProcess, round_trip_s: float) -> Iterator[str]:
    """Where the server is reached: directly, or over a link."""
    if not round_trip_s:
        yield reference_server.url
        return
    with Link(reference_server.url, round_trip_s) as link:
        yield link.url


@pytest.fixture
async def connection(server_url: str) -> AsyncIterator[Connection]:
    async with connect(server_url, name="tests of groups") as connection:
        yield connection


@pytest.fixture
async def empty(
    reference_server: peers.ServerProcess, connection: Connection
) -> Callable[[], Awaitable[None]]:
    """Remove every stream, and wait until it is gone.

    nats-server (2.15) answers first: a stream made anew would find, and take, what is not removed yet; and
    where the last one is removed the next one is not made at times, so one stays.
    """

    async def empty() -> None:
        js = connection.jetstream()
        await js.create_stream(name=KEPT)
        for name in [name async for name in js.stream_names() if name != KEPT]:
            await js.delete_stream(name)
        left = reference_server.store_dir
        await until(lambda: {each.name for each in left.glob("jetstream/*/streams/*")} <= {KEPT})

    return empty


@pytest.fixture
async def js(
    connection: Connection, empty: Callable[[], Awaitable[None]]
) -> AsyncIterator[JetStream]:
    """A context in an account that is empty before and after the test, but for one stream."""
    await empty()
    yield connection.jetstream()
    await empty()
