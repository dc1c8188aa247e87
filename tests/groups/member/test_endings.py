"""What becomes of a group's messages when a member goes: left, cancelled, or with its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import chain
from typing import Any

import pytest

import peers
from headrace.api.consumers import ConsumerConfig
from headrace.client import Connection, connect
from headrace.client.events import ErrorEvent, Event
from headrace.errors import ConnectionClosedError
from headrace.groups import GroupMessage, MemberMapping, elastic
from headrace.groups.member import Membership
from member_world import GROUP, QUICK, STREAM, World
from waiting import block, until

pytestmark = pytest.mark.peer

MESSAGES = 60
WORK_S = 0.03
AHEAD = ConsumerConfig(
    ack_wait=300.0, max_ack_pending=1000
)  # much is under way, and waits long if lost
KINDS = ("coroutine", "plain", "iterated")  # each a member with a partition of its own


async def work_for(seconds: float) -> None:
    """What a handler does."""
    await asyncio.sleep(seconds)


@pytest.fixture
async def theirs(reference_server: peers.ServerProcess) -> AsyncIterator[Connection]:
    """The connection of those who go."""
    async with connect(reference_server.url, close_timeout=2) as connection:
        yield connection


class Workers:
    """A member of each kind, over one connection, and what they did."""

    def __init__(self, world: World, connection: Connection) -> None:
        self.begun: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.acked: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.tasks: list[asyncio.Task[None]] = []
        self.members: list[Membership[Any]] = []
        js = connection.jetstream()
        for kind, handler in (
            ("coroutine", self._coroutine),
            ("plain", self._plain),
            ("iterated", None),
        ):
            self.members.append(world.join(kind, handler, js=js, config=AHEAD))
        self.members[2] = elastic.join(js, STREAM, GROUP, "iterated", config=AHEAD)

    async def start(self) -> None:
        for member in self.members:
            await member.start()
        self.tasks.append(asyncio.create_task(self._iterate(self.members[2])))
        await until(lambda: all(len(each) >= 5 for each in self.acked.values()))

    async def run(self) -> None:
        """In their blocks, until this is cancelled."""
        async with self.members[0], self.members[1], self.members[2]:
            await self._iterate(self.members[2])

    async def _coroutine(self, message: GroupMessage) -> None:
        self.begun["coroutine"].append(int(message.payload))
        await work_for(WORK_S)
        message.ack()
        self.acked["coroutine"].append(int(message.payload))

    def _plain(self, message: GroupMessage) -> None:
        self.begun["plain"].append(int(message.payload))
        block(WORK_S)
        message.ack()
        self.acked["plain"].append(int(message.payload))

    async def _iterate(self, membership: Membership[Any]) -> None:
        async for message in membership:
            self.begun["iterated"].append(int(message.payload))
            await work_for(WORK_S)
            message.ack()
            self.acked["iterated"].append(int(message.payload))


@pytest.fixture
async def workers(world: World, theirs: Connection) -> Workers:
    await world.create()
    shares = [MemberMapping(kind, (number,)) for number, kind in enumerate(KINDS[:2])]
    shares.append(MemberMapping(KINDS[2], (2, 3)))
    await elastic.set_mappings(world.js, STREAM, GROUP, shares)
    await world.publish(3 * MESSAGES, keys=64)
    return Workers(world, theirs)


async def leave(workers: Workers, _: Connection) -> None:
    await asyncio.gather(*(member.leave() for member in workers.members))


async def close(_: Workers, connection: Connection) -> None:
    await connection.close()


async def drain(_: Workers, connection: Connection) -> None:
    await connection.drain()


async def cancel(workers: Workers, _: Connection) -> None:
    workers.tasks[0].cancel()
    await asyncio.wait(workers.tasks)


@pytest.mark.parametrize("end", [leave, close, drain, cancel])
async def test_what_is_in_hand_is_handled_and_acknowledged_and_what_is_ahead_goes_on_at_once(
    world: World,
    workers: Workers,
    theirs: Connection,
    end: Callable[[Workers, Connection], Awaitable[None]],
) -> None:
    if end is cancel:
        workers.tasks.append(asyncio.create_task(workers.run()))
        await until(lambda: all(len(each) >= 5 for each in workers.acked.values()))
    else:
        await workers.start()
    await end(workers, theirs)
    done = {kind: list(each) for kind, each in workers.acked.items()}
    async with (
        world.join(KINDS[0], config=AHEAD),
        world.join(KINDS[1], config=AHEAD),
        world.join(KINDS[2], config=AHEAD),
    ):
        await until(
            lambda: len(set(world.seen.numbers())) >= 3 * MESSAGES - sum(map(len, done.values()))
        )
    for kind in KINDS:
        cut_off = kind == "iterated" and end is cancel  # at most the one in hand
        assert len(workers.begun[kind]) - len(done[kind]) <= cut_off, kind
        assert done[kind] == workers.acked[kind], f"{kind}: nothing begins afterwards"
    handled = sorted([*chain(*done.values()), *world.seen.numbers()])
    assert handled == list(range(3 * MESSAGES)), "none is lost, none is handled twice"
    await asyncio.gather(*workers.tasks, return_exceptions=True)


async def test_a_handler_that_runs_on_is_cancelled_in_time_and_the_rest_goes_on(
    world: World, reference_server: peers.ServerProcess
) -> None:
    await world.create(members=("a",))
    await world.publish(2, keys=1)
    begun, cancelled = asyncio.Event(), asyncio.Event()
    events: list[Event] = []

    async def handle(message: GroupMessage) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    url = reference_server.url
    async with connect(url, close_timeout=0.05, on_event=events.append) as connection:
        membership = await world.join("a", handle, js=connection.jetstream(), config=QUICK).start()
        await asyncio.wait_for(begun.wait(), 5)
    assert cancelled.is_set()
    with pytest.raises(ConnectionClosedError):
        await membership.wait()
    errors = [str(event.error) for event in events if isinstance(event, ErrorEvent)]
    assert any("close_timeout" in error for error in errors), errors
    async with world.join("a", config=QUICK):
        await world.until_seen()
    world.seen.check_once_and_in_order(2)


async def test_a_handler_may_close_its_connection(world: World, theirs: Connection) -> None:
    await world.create(members=("a",))
    await world.publish(3, keys=1)
    handled: list[int] = []

    async def handle(message: GroupMessage) -> None:
        handled.append(int(message.payload))
        await message.ack_sync()
        await theirs.close()

    membership = await world.join("a", handle, js=theirs.jetstream(), config=QUICK).start()
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(membership.wait(), 3)
    async with world.join("a", config=QUICK):
        await until(lambda: len(world.seen.rows) == 2)
    assert handled + world.seen.numbers() == [0, 1, 2]


async def test_what_an_iteration_holds_and_answered_not_goes_back_when_it_leaves(
    world: World,
) -> None:
    await world.create(members=("a",))
    await world.publish(3, keys=1)
    async with world.iterate("a", config=AHEAD) as membership:
        async for message in membership:
            assert message.payload == b"0"
            break
    async with world.join("a", config=AHEAD):
        await world.until_seen()
    world.seen.check_once_and_in_order(3)


async def test_who_leaves_waits_for_the_task_that_iterates(world: World) -> None:
    await world.create(members=("a",))
    await world.publish(3, keys=1)
    taken, go_on = asyncio.Event(), asyncio.Event()
    membership = await world.iterate("a", config=AHEAD).start()

    async def iterate() -> None:
        async for message in membership:
            taken.set()
            await go_on.wait()
            await message.ack_sync()

    iterating = asyncio.create_task(iterate())
    await asyncio.wait_for(taken.wait(), 5)
    leaving = asyncio.create_task(membership.leave())
    await world.js.connection.flush()
    await world.js.account_info()  # time for it to end, if it did not wait
    assert not leaving.done()
    go_on.set()
    await leaving
    await iterating
    async with world.join("a", config=AHEAD):
        await world.until_seen(2)
    assert world.seen.numbers() == [1, 2]


async def test_a_member_whose_server_is_away_is_not_waited_for(headrace_server: Any) -> None:
    server: peers.ServerProcess = headrace_server()
    async with connect(server.url, drain_timeout=3600) as connection:
        world = World(connection.jetstream())
        await world.create(members=("a",))
        await world.publish(1)
        membership = await world.join("a").start()
        await world.until_seen()
        server.stop()
        await until(lambda: not connection.is_connected)
        await connection.drain()  # whoever waited for the server would wait for an hour
        await membership.wait()
