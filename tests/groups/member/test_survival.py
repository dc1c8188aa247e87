"""A member survives what happens to servers and links, and tells when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import peers
from headrace.client import connect
from headrace.errors import ConnectionClosedError
from headrace.groups import elastic
from member_world import GROUP, QUICK, STREAM, World
from nats_cluster import Cable
from peers import ServerProcess
from waiting import until

pytestmark = pytest.mark.peer


@pytest.fixture
def own_server(
    request: pytest.FixtureRequest,
    nats_server: Callable[..., ServerProcess],
    headrace_server: Callable[..., ServerProcess],
) -> ServerProcess:
    return nats_server() if request.param == "nats-server" else headrace_server()


@pytest.fixture
async def world(own_server: ServerProcess) -> AsyncIterator[World]:
    async with connect(own_server.url, reconnect_wait=0.05) as connection:
        yield World(connection.jetstream(), storage="file")


@pytest.mark.parametrize("own_server", ["nats-server", "headrace"], indirect=True)
async def test_a_server_that_is_killed_and_started_again(
    world: World, own_server: peers.ServerProcess
) -> None:
    await world.create(members=("a",))
    async with world.join("a", config=QUICK) as a, world.join("b", config=QUICK) as b:
        await world.publish(20)
        await world.until_seen()
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start_again)
        await world.js.connection.flush()
        await world.publish(20)
        await until(lambda: set(world.seen.numbers()) == set(range(40)), "not all were handled")
        seen = len(world.seen.rows)
        again = world.seen.forget_repeated()  # their acks were under way when the server was killed
        assert set(again) <= set(range(20))
        await elastic.set_mappings(world.js, STREAM, GROUP, world.mapped("b"))
        await world.publish(20)
        await world.until_seen(seen - len(again) + 20)
        assert b.is_active
        assert not a.is_active
    world.seen.check_once_and_in_order(60)


@pytest.mark.parametrize("own_server", ["headrace"], indirect=True)
async def test_a_link_that_is_cut_and_mended(world: World, own_server: ServerProcess) -> None:
    await world.create(members=("a",))
    cable = Cable(own_server.port)
    async with (
        connect(f"nats://127.0.0.1:{cable.port}", reconnect_wait=0.05) as far,
        world.join("a", js=far.jetstream(), config=QUICK) as member,
    ):
        await world.publish(4)
        await world.until_seen()
        generation = member.generation
        cable.cut()
        await until(lambda: not member.is_active)  # alone, and not sure of it any more
        await world.publish(4)
        cable.mend()
        await world.until_seen()
        assert member.generation > generation
    cable.close()
    world.seen.check_once_and_in_order(8)


@pytest.mark.parametrize("own_server", ["headrace"], indirect=True)
async def test_a_closed_connection_ends_the_membership(world: World, no_leaks: None) -> None:
    await world.create(members=("a",))
    async with connect(world.url) as other:
        membership = await world.join("a", js=other.jetstream()).start()
        await world.publish(1)
        await world.until_seen()
        await other.close()
        with pytest.raises(ConnectionClosedError):
            await membership.wait()
    await membership.leave()


@pytest.mark.parametrize("own_server", ["headrace"], indirect=True)
async def test_a_beginning_that_fails_leaves_nothing(
    world: World, no_leaks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create(members=("a",))

    async def refuse(*arguments: object) -> None:
        raise ConnectionClosedError("closed meanwhile")

    monkeypatch.setattr("headrace.groups.member.membership.announce", refuse)
    membership = world.join("a")
    with pytest.raises(ConnectionClosedError, match="closed meanwhile"):
        async with membership:
            pass
    monkeypatch.undo()
    async with membership:  # it had not begun
        await world.publish(1)
        await world.until_seen()
