"""Elastic groups on streams of interest retention: nothing is lost, or the group is refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import peers
from headrace.client import JetStream, connect
from headrace.groups import GroupConfigurationError, PartitioningFilter, elastic
from headrace.groups.trouble import troubles
from waiting import until

COUNT = 100
BY_KEY = [PartitioningFilter("s.*", (1,))]


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    yield from peers.either_running(request.param, tmp_path, durable=True)


async def publish(js: JetStream) -> None:
    for number in range(COUNT):
        await js.publish(f"s.{number % 7}", b"%d" % number)


async def copied(js: JetStream) -> int:
    return (await (await js.stream("S-g")).info()).state.messages


async def test_what_comes_right_after_the_creation_or_a_restart_is_not_lost(
    server: peers.ServerProcess,
) -> None:
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.1) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.*"], retention="interest")
        if server.name == "nats-server":
            with pytest.raises(GroupConfigurationError, match="retention interest") as refused:
                await elastic.create(js, "S", "g", 4, partitioning_filters=BY_KEY)
            assert "headrace stream edit S --retention limits --max-age 7d" in str(refused.value)
            assert "S-g" not in [name async for name in js.stream_names()]
            await stream.update(retention="limits", max_age=7 * 86_400)
        group = await elastic.create(js, "S", "g", 4, partitioning_filters=BY_KEY)
        assert await troubles(js, group) == ()
        await publish(js)

        async def has(messages: int) -> bool:
            return await copied(js) == messages

        await until(lambda: has(COUNT), within=30)
        server.kill()
        server.start_again()
        await until(lambda: connection.reconnects and connection.is_connected, within=30)
        await publish(js)
        await until(lambda: has(2 * COUNT), within=60)


async def test_a_stream_that_became_so_is_told_of_where_it_loses_messages(
    server: peers.ServerProcess,
) -> None:
    async with connect(server.url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.*"])
        group = await elastic.create(js, "S", "g", 4, partitioning_filters=BY_KEY)
        await stream.update(retention="interest")
        kinds = [each.kind for each in await troubles(js, group)]
        assert kinds == (["interest"] if server.name == "nats-server" else [])
