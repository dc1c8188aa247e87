"""A connection lost at each read and each write in turn: readers get everything that they are promised."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from cutting import Cutter, everywhere
from headrace.client import Consumer, JetStream, JetStreamMessage, OrderedConsumer, Stream
from headrace.client.jetstream.fetch import Fetch
from headrace.embedded import Broker
from headrace.errors import HeadraceError
from waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

COUNT = 12
PAYLOADS = [b"%d" % number for number in range(COUNT)]
_numbers = itertools.count(1)


async def make_stream(calm: JetStream) -> Stream:
    """A stream that holds the payloads."""
    name = f"S{next(_numbers)}"
    stream = await calm.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    async with calm.publisher() as publisher:
        await publisher.send_many((f"{name}.a", payload) for payload in PAYLOADS)
    return stream


class Taking:
    """Acknowledges messages; every other one with a confirmation."""

    def __init__(self, judge: Consumer) -> None:
        self._judge = judge
        self._last: dict[bytes, int] = {}  # the server delivered no more when it was confirmed
        self.seen: list[bytes] = []

    async def take(self, message: JetStreamMessage) -> None:
        last = self._last.get(message.payload, math.inf)
        assert message.metadata.consumer_seq <= last, "delivered after it was confirmed"
        self.seen.append(message.payload)
        if len(self.seen) % 2:
            message.ack()
            return
        try:
            await message.ack_sync()
        except HeadraceError:
            return  # it is delivered again, or not
        self._last[message.payload] = (await self._judge.info()).delivered.consumer_seq

    async def all_are_acked(self) -> bool:
        info = await self._judge.info()
        return info.num_pending == 0 and info.num_ack_pending == 0


async def by_consume(consumer: Consumer, taking: Taking) -> None:
    async with consumer.consume(max_messages=6, expires=1) as messages:
        async for message in messages:
            await taking.take(message)


async def by_callback(consumer: Consumer, taking: Taking) -> None:
    await consumer.consume(taking.take, max_bytes=600, expires=1).wait()


async def by_fetch(consumer: Consumer, taking: Taking) -> None:
    while True:
        for message in await consumer.fetch(5, max_wait=1):
            await taking.take(message)


Read = Callable[[Consumer, Taking], Awaitable[None]]


@pytest.mark.parametrize("way", [by_consume, by_callback, by_fetch])
async def test_a_reader_gets_every_message_wherever_its_connection_is_lost(
    quick_broker: Broker, calm: JetStream, way: Read
) -> None:
    async def read(cutter: Cutter) -> None:
        stream = await make_stream(calm)
        taking = Taking(await stream.create_consumer(durable_name="c", ack_wait=0.2))
        async with cutter.connect(quick_broker.client_url) as connection:
            consumer = await connection.jetstream().consumer(stream.name, "c")
            cutter.is_armed = True
            reading = asyncio.ensure_future(way(consumer, taking))
            await until(taking.all_are_acked)
            assert not reading.done()
            cutter.is_armed = False
            reading.cancel()
            await asyncio.wait([reading])
        assert set(taking.seen) == set(PAYLOADS)
        await stream.delete()

    assert await everywhere(read) > 30


async def in_order_by_consume(ordered: OrderedConsumer) -> list[bytes]:
    async with ordered.consume(max_messages=6) as messages:
        return [(await anext(messages)).payload for _ in PAYLOADS]


async def in_order_by_batches(ordered: OrderedConsumer) -> list[bytes]:
    found: list[bytes] = []
    async with ordered.consume(max_messages=6) as messages:
        while len(found) < COUNT:
            found += [message.payload for message in await messages.next_batch(4)]
    return found


async def in_order_by_fetch(ordered: OrderedConsumer) -> list[bytes]:
    """Until nothing is there: a fetch that brings nothing says that it was all."""
    found: list[bytes] = []
    while True:
        try:
            batch = await ordered.fetch(5, no_wait=True)
        except HeadraceError:
            continue
        if not batch:
            return found
        found += batch.payloads


async def in_order_by_next(ordered: OrderedConsumer) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < COUNT:
        try:
            found.append((await ordered.next()).payload)
        except HeadraceError:
            continue
    return found


ReadInOrder = Callable[[OrderedConsumer], Awaitable[list[bytes]]]
IN_ORDER = [in_order_by_consume, in_order_by_batches, in_order_by_fetch, in_order_by_next]


@pytest.mark.parametrize("way", IN_ORDER)
async def test_an_ordered_reader_gets_each_message_once_wherever_its_connection_is_lost(
    quick_broker: Broker, calm: JetStream, way: ReadInOrder
) -> None:
    async def read(cutter: Cutter) -> None:
        stream = await make_stream(calm)
        async with cutter.connect(quick_broker.client_url) as connection:
            mine = await connection.jetstream().stream(stream.name)
            ordered = await mine.ordered_consumer()
            cutter.is_armed = True
            assert await way(ordered) == PAYLOADS
            cutter.is_armed = False
        await stream.delete()

    assert await everywhere(read) > 20


async def test_what_came_for_an_ordered_fetch_that_was_cancelled_comes_for_the_next(
    calm: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = await (await make_stream(calm)).ordered_consumer()
    brought = Fetch.__await__

    def cancelled(fetch: Fetch) -> Generator[Any, None, Any]:
        yield from brought(fetch)
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(Fetch, "__await__", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await ordered.fetch(COUNT)
    assert (await ordered.fetch(COUNT)).payloads == PAYLOADS


@pytest.mark.parametrize("history", [False, True])
async def test_a_watch_sees_every_change_wherever_its_connection_is_lost(
    quick_broker: Broker, calm: JetStream, history: bool
) -> None:
    async def read(cutter: Cutter) -> None:
        bucket = f"B{next(_numbers)}"
        values = await calm.create_key_value(bucket=bucket, history=5, storage="memory")
        for number in range(1, 13):
            await values.put(f"k{number % 4}", b"%d" % number)
        async with cutter.connect(quick_broker.client_url) as connection:
            mine = await connection.jetstream().key_value(bucket)
            async with await mine.watch(history=history) as watch:
                cutter.is_armed = True
                first = [int(entry.value) async for entry in watch.initial()]
                assert first == list(range(1 if history else 9, 13))
                for number in range(13, 25):
                    await values.put(f"k{number % 4}", b"%d" % number)
                then = [int((await anext(watch)).value) for _ in range(13, 25)]
                assert then == list(range(13, 25))
                cutter.is_armed = False
        await calm.delete_key_value(bucket)

    assert await everywhere(read) > 20
