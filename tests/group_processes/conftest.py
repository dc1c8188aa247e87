"""The servers that members meet on, each started once, and the other implementations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import peers
from group_processes.crowd import PeerVerbs
from group_processes.strangers import STRANGERS, Stranger, is_wanted
from headrace.client import Connection, connect
from portions import play_one_way

START: dict[str, Callable[[Path], peers.ServerProcess]] = {
    "headrace": peers.start_headrace,
    "nats-server": peers.start_nats_server,
}


@pytest.fixture(scope="session", params=[each for each in STRANGERS if is_wanted(each)])
def stranger(request: pytest.FixtureRequest) -> Stranger:
    """Each of the other implementations that can be had here."""
    return STRANGERS[request.param]()


SERVERS = ("headrace", pytest.param("nats-server", marks=pytest.mark.peer))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; what members make of it, half of the tests
    try on either, and ``make groups`` and ``make test-all`` all on both."""
    play_one_way(metafunc, "server", SERVERS)


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Our broker in a process of its own, and nats-server."""
    started = START[request.param](tmp_path_factory.mktemp(request.param))
    yield started
    started.stop()


@pytest.fixture
async def connection(server: peers.ServerProcess) -> AsyncIterator[Connection]:
    """To that server, which is empty again when the test is over."""
    async with connect(server.url, ping_interval=0.5, reconnect_wait=0.05) as opened:
        yield opened
        js = opened.jetstream()
        for name in [name async for name in js.stream_names()]:
            await js.delete_stream(name)


@pytest.fixture(scope="session")
def verb(server: peers.ServerProcess, stranger: Stranger) -> Iterator[PeerVerbs]:
    """The verbs of the other implementation, on that server."""
    with PeerVerbs(stranger, server.url) as verbs:
        yield verbs
