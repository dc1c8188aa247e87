"""Connections of nats-py to either server, for tests that run on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

import peers
from headrace.broker.server import Broker


@pytest.fixture(scope="session")
def lasting_nats_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[peers.ServerProcess]:
    """One nats-server for all tests that name their streams and buckets for themselves."""
    server = peers.start_nats_server(tmp_path_factory.mktemp("nats-server"))
    yield server
    server.stop()


@pytest.fixture(params=[pytest.param("nats-server", marks=pytest.mark.peer), "headrace"])
async def connection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A connection of nats-py to nats-server, and one to a broker of ours in this loop."""
    async with AsyncExitStack() as stack:
        if request.param == "headrace":
            broker = await stack.enter_async_context(Broker(store_dir=tmp_path / "store"))
            url = broker.client_url
        else:
            url = request.getfixturevalue("lasting_nats_server").url
        client = await nats.connect(url, allow_reconnect=False)
        yield client
        for info in await client.jetstream().streams_info():
            await client.jetstream().delete_stream(str(info.config.name))
        await client.close()
