"""What a callback that blocks costs: the table in ``docs/client.md``, line by line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace import sync
from headrace.client import Connection
from headrace.embedded import Broker
from headrace.groups import elastic
from waiting import block, until

BLOCKS_S = 0.15
Begin = Callable[[Connection, Callable[[Any], Any], AsyncExitStack], Awaitable[object]]


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    async with Broker(port=-1) as broker, broker.connect() as connection:
        await connection.jetstream().create_stream(name="S", subjects=["s.*"])
        yield connection


async def subscribes(connection: Connection, called: Any, stack: AsyncExitStack) -> None:
    await connection.subscribe("s.*", callback=called)
    await connection.publish("s.1")


async def consumes(connection: Connection, called: Any, stack: AsyncExitStack) -> None:
    consumer = await connection.jetstream().create_consumer("S", durable_name="c")
    await stack.enter_async_context(consumer.consume(called))
    await connection.publish("s.1")


async def listens(connection: Connection, called: Any, stack: AsyncExitStack) -> None:
    consumer = await connection.jetstream().create_consumer(
        "S", durable_name="p", deliver_subject="deliveries"
    )
    await stack.enter_async_context(await consumer.listen(called))
    await connection.publish("s.1")


async def serves(connection: Connection, called: Any, stack: AsyncExitStack) -> None:
    service = await connection.add_service("mill", version="1.0.0")
    await service.add_endpoint("grind", called)
    await connection.publish("grind", reply="answers")


async def joins(connection: Connection, called: Any, stack: AsyncExitStack) -> None:
    js = connection.jetstream()
    await elastic.create(js, "S", "g", 2, members=["a"])
    await stack.enter_async_context(elastic.join(js, "S", "g", "a", called))
    await connection.publish("s.1")


@pytest.mark.parametrize(
    ("begin", "kind", "is_on_loop"),
    [
        (subscribes, "plain", True),
        (subscribes, "coroutine", True),
        (consumes, "plain", True),
        (consumes, "coroutine", True),
        (listens, "plain", True),
        (listens, "coroutine", True),
        (serves, "plain", True),
        (serves, "coroutine", True),
        (joins, "plain", False),
        (joins, "coroutine", True),
    ],
)
async def test_a_callback_that_blocks_stops_the_loop_or_its_own_thread(
    connection: Connection, begin: Begin, kind: str, is_on_loop: bool
) -> None:
    threads: list[int] = []

    def plain(message: Any) -> None:
        block(BLOCKS_S)
        threads.append(threading.get_ident())

    async def coroutine(message: Any) -> None:
        plain(message)

    async with AsyncExitStack() as stack:
        await begin(connection, plain if kind == "plain" else coroutine, stack)
        late = await _latest_turn(lambda: bool(threads))
    assert (threads[0] == threading.get_ident()) is is_on_loop
    if is_on_loop:
        assert late >= BLOCKS_S


async def _latest_turn(done: Callable[[], bool]) -> float:
    """The longest time between two turns of the loop, until it is done."""
    loop = asyncio.get_running_loop()
    latest, before = 0.0, loop.time()
    while not done():
        await asyncio.sleep(0.001)
        latest, before = max(latest, loop.time() - before), loop.time()
    return latest


async def test_a_blocking_callback_of_the_blocking_client_lets_its_connection_go_on() -> None:
    async with Broker(port=-1) as broker:
        begun, go_on = threading.Event(), threading.Event()

        def work() -> None:
            with sync.connect(broker.client_url) as connection:

                def called(message: Any) -> None:
                    begun.set()
                    assert go_on.wait(10)

                connection.subscribe("s", callback=called)
                connection.publish("s")
                assert begun.wait(10)
                try:
                    connection.flush()
                finally:
                    go_on.set()

        await asyncio.to_thread(work)
    await until(lambda: not [each for each in threading.enumerate() if each.name == "headrace"])
