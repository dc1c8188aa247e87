"""A handler runs where its message is received: the same for it, and no turn of the loop for the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker, Connection, connect
from headrace.errors import ConnectionClosedError
from headrace.groups import GroupMessage, HandlerFailedError, Layout
from member_world import World
from waiting import until

LAYOUTS: list[Layout] = ["interoperable", "per_partition"]
TOTAL = 40
times: ContextVar[int] = ContextVar("times", default=0)


class Receiving:
    """Whether a connection is handing out what it received, and what it has not sent when it is done.

    Attributes:
        unsent: after each chunk in which something was ``handled``: bytes, and whether a turn of the loop was
            asked for to send them.
    """

    def __init__(self, connection: Connection) -> None:
        self.is_now = False
        self.handled = 0
        self.unsent: list[tuple[int, bool]] = []
        session = connection._session
        assert session.link is not None
        real, outbox = session.link.on_frames, session.outbox

        def receive(frames: list[Any]) -> None:
            self.is_now, self.handled = True, 0
            try:
                real(frames)
            finally:
                self.is_now = False
            if self.handled:
                self.unsent.append((outbox.unsent_bytes, outbox._scheduled))

        session.link.on_frames = receive


@asynccontextmanager
async def member_of(directory: Path, layout: Layout) -> AsyncIterator[tuple[World, Connection]]:
    """A group of one member on a broker, and a connection for that, over a socket."""
    async with (
        Broker(store_dir=directory) as broker,
        broker.connect() as admin,
        connect(broker.client_url, reconnect=False) as connection,
    ):
        world = World(admin.jetstream())
        await world.create(layout, members=("a",))
        yield world, connection


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_handlers_are_promised_the_same_at_once_and_in_the_next_turn(
    tmp_path: Path, layout: Layout
) -> None:
    found: dict[bool, list[Any]] = {}
    for at_once in (True, False):
        async with member_of(tmp_path / str(at_once), layout) as (world, connection):
            connection._session.may_run_readers = at_once
            found[at_once] = await _promises(world, connection, at_once=at_once)
    assert found[True] == found[False]


async def _promises(world: World, connection: Connection, *, at_once: bool) -> list[Any]:
    """What a handler finds that suspends, runs out of time, or does neither."""
    receiving = Receiving(connection)
    began_inside: list[bool] = []
    rows: list[Any] = []

    async def handle(message: GroupMessage) -> None:
        number, task = int(message.payload), asyncio.current_task()
        began_inside.append(receiving.is_now)
        assert task is not None
        times.set(times.get() + 1)
        ended = "at once"
        if number % 5 == 1:
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
            except TimeoutError:
                ended = "out of time"
        elif number % 3 == 1:
            await asyncio.sleep(0)
            ended = "in a later turn"
        assert task is asyncio.current_task()
        message.ack()
        rows.append((number, task.get_name(), times.get(), task.cancelling(), ended))

    async with world.join("a", handle, js=connection.jetstream()):
        for number in range(TOTAL):
            await world.publish(1)
            await until(lambda number=number: len(rows) > number)  # type: ignore[misc]
    if at_once:
        assert sum(began_inside) > TOTAL / 2, "handlers do not run where messages are received"
    else:
        assert not any(began_inside)
    return rows


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_what_is_acknowledged_at_once_is_sent_without_a_turn_of_the_loop(
    tmp_path: Path, layout: Layout
) -> None:
    async with member_of(tmp_path, layout) as (world, connection):
        receiving = Receiving(connection)

        async def handle(message: GroupMessage) -> None:
            message.ack()
            world.seen.note("a", message)
            receiving.handled += 1

        await world.publish(TOTAL)
        async with world.join("a", handle, js=connection.jetstream()):
            await world.until_seen()
        world.seen.check_once_and_in_order(TOTAL)
        assert len(receiving.unsent) > TOTAL / 10  # some chunks have a message of each partition
        assert set(receiving.unsent) == {(0, False)}


async def _leave(world: World, connection: Connection, membership: Any) -> None:
    await membership.leave()


async def _close(world: World, connection: Connection, membership: Any) -> None:
    await connection.close()


async def _fail(world: World, connection: Connection, membership: Any) -> None:
    raise ValueError("of the handler")


@pytest.mark.parametrize(
    ("does", "ends_with"),
    [(_leave, None), (_close, ConnectionClosedError), (_fail, HandlerFailedError)],
    ids=lambda each: getattr(each, "__name__", None),
)
async def test_a_handler_may_end_what_it_runs_in(
    tmp_path: Path, does: Callable[..., Any], ends_with: type[Exception] | None
) -> None:
    """It is called by the connection that it closes, and by the membership that it leaves."""
    async with member_of(tmp_path, "interoperable") as (world, connection):
        receiving = Receiving(connection)
        inside: list[bool] = []
        membership: Any = None

        async def handle(message: GroupMessage) -> None:
            inside.append(receiving.is_now)
            if len(inside) < 3:
                message.ack()
            else:
                await does(world, connection, membership)

        await world.publish(6)
        membership = world.join("a", handle, js=connection.jetstream())
        await membership.start()
        if ends_with is None:
            await membership.wait()
        else:
            with pytest.raises(ends_with):
                await membership.wait()
        assert inside[-1], "it did not run where its message was received"
        assert len(inside) == 3
