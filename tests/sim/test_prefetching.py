"""What is sent ahead of a handler is never handled twice for that alone, however long a handler takes.

Real clients and the broker's core, as everywhere here, on one virtual clock: hours pass in a moment.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from headrace.client import Connection, Consumer, JetStreamMessage
from portions import some
from sim.groups.cast import draw
from sim.groups.client import connect
from sim.groups.host import Host
from sim.groups.loop import Process, Universe
from sim.groups.network import Network

ACK_WAIT_S = 30.0

Handle = Callable[[JetStreamMessage], Any]


class Place:
    """A broker with a stream, and workers that each have a process and a connection."""

    def __init__(self, seed: int = 1) -> None:
        self.universe = Universe()
        self.rng = random.Random(seed)
        self.network = Network(self.universe, self.rng, 0.0005)
        cast = replace(draw(self.rng), genre="planned", faults=())
        self.host = Host(self.universe, self.network, self.rng, cast)
        self.host.boot()
        self.handled: Counter[int] = Counter()
        self.by: dict[str, list[int]] = {}
        self.acked: set[int] = set()
        self.connections: list[Connection] = []

    async def connected(self, process: Process) -> Connection:
        connection = await connect(process, self.network, self.host, self.rng)
        self.connections.append(connection)
        return connection

    def filled(self, messages: int, **config: Any) -> None:
        """Make the stream, its messages and the consumer."""
        process = Process(self.universe, "admin")

        async def fill() -> None:
            js = (await self.connected(process)).jetstream()
            stream = await js.create_stream(name="S", subjects=["s.>"], storage="memory")
            async with js.publisher() as publisher:
                for _ in range(messages):
                    await publisher.send("s.a", b"x")
            await stream.create_consumer(durable_name="c", ack_wait=ACK_WAIT_S, **config)

        task = process.create_task(fill())
        assert self.universe.run(self.universe.now + 60, task.done)
        task.result()

    def handler(self, name: str, seconds: float) -> Handle:
        """Takes its time, and asks for more as one should; a message in hand is no prefetched one."""
        seen = self.by.setdefault(name, [])

        async def handle(message: JetStreamMessage) -> None:
            sequence = message.metadata.stream_seq
            self.handled[sequence] += 1
            seen.append(sequence)
            left, often = seconds, ACK_WAIT_S / 3
            while left > often:
                await asyncio.sleep(often)
                message.in_progress()
                left -= often
            await asyncio.sleep(left)
            message.ack()
            self.acked.add(sequence)

        return handle

    def work(self, name: str, seconds: float, how: str, **limits: Any) -> Process:
        """Begin to work in a process of its own."""
        process = Process(self.universe, name)
        handle = self.handler(name, seconds)

        async def work() -> None:
            js = (await self.connected(process)).jetstream()
            consumer = await js.consumer("S", "c")
            await WAYS[how](consumer, handle, limits)

        process.create_task(work(), name=name)
        return process

    def run(self, messages: int, within: float) -> None:
        """Until all are acknowledged, and for long enough that one would come again."""
        until = self.universe.now + within
        assert self.universe.run(until, lambda: len(self.acked) == messages), (
            f"only {len(self.acked)} of {messages} within {within} s"
        )
        self.universe.run(self.universe.now + 3 * ACK_WAIT_S)


async def called(consumer: Consumer, handle: Handle, limits: dict[str, Any]) -> None:
    await consumer.consume(handle, **limits).wait()


async def at_once(consumer: Consumer, handle: Handle, limits: dict[str, Any]) -> None:
    await consumer.consume(handle, concurrency=3, **limits).wait()


async def in_order(consumer: Consumer, handle: Handle, limits: dict[str, Any]) -> None:
    """All are of one key: what is ahead waits beside the buffer."""
    await consumer.consume(handle, concurrency=3, order_by=lambda m: m.subject, **limits).wait()


async def iterated(consumer: Consumer, handle: Handle, limits: dict[str, Any]) -> None:
    async with consumer.consume(**limits) as messages:
        async for message in messages:
            await handle(message)


async def in_batches(consumer: Consumer, handle: Handle, limits: dict[str, Any]) -> None:
    async with consumer.consume(**limits) as messages:
        async for batch in messages.batches(1):
            await handle(batch[0])


WAYS = {
    "callback": called,
    "at once": at_once,
    "in order": in_order,
    "iterated": iterated,
    "batches": in_batches,
}


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    for connection in place.connections:
        connection._session.finish(None)
    place.universe.bury()


LIMITS: list[dict[str, int]] = [{}, {"max_messages": 500}]
SPEEDS = [(1e-6, 1_000), (1e-3, 1_000), (0.1, 700), (1.0, 150), (11.0, 30), (45.0, 8), (600.0, 4)]


@pytest.mark.parametrize(
    ("how", "limits", "seconds", "messages"),
    # Of two limits, every other handler's time is played with the one and the rest with the other.
    [(how, limits, *speed) for how, limits, speed in some(product(WAYS, LIMITS, SPEEDS), 2)],
)
def test_prefetching_alone_never_doubles(
    place: Place, how: str, limits: dict[str, int], seconds: float, messages: int
) -> None:
    place.filled(messages)
    place.work("worker", seconds, how, **limits)
    place.run(messages, messages * (seconds + 0.1) + 60)
    assert max(place.handled.values()) == 1


@pytest.mark.parametrize("how", WAYS)
def test_a_handler_that_becomes_slow_does_not_double_what_is_ahead(place: Place, how: str) -> None:
    place.filled(600)
    quick = place.handler("worker", 0.0)
    slow = place.handler("worker", 50.0)
    process = Process(place.universe, "worker")

    async def handle(message: JetStreamMessage) -> None:
        await (slow if message.metadata.stream_seq in (200, 300) else quick)(message)

    async def work() -> None:
        consumer = await (await place.connected(process)).jetstream().consumer("S", "c")
        await WAYS[how](consumer, handle, {})

    process.create_task(work())
    place.run(600, 300)
    assert max(place.handled.values()) == 1


def test_slow_workers_share_a_backlog(place: Place) -> None:
    """The first one does not take all of it for hours."""
    place.filled(40)
    place.work("first", 10.0, "callback")
    place.universe.run(place.universe.now + 1)
    place.work("second", 10.0, "callback")
    place.run(40, 40 * 10 / 2 + 60)
    assert max(place.handled.values()) == 1
    assert all(len(seen) >= 15 for seen in place.by.values())


def test_a_quick_handler_soon_has_as_much_ahead_as_it_may(place: Place) -> None:
    place.filled(5_000)
    process = Process(place.universe, "worker")
    most: list[int] = []

    async def work() -> None:
        consumer = await (await place.connected(process)).jetstream().consumer("S", "c")
        async with consumer.consume() as messages:
            async for message in messages:
                message.ack()
                most.append(messages.buffered)
                place.acked.add(message.metadata.stream_seq)
                if len(most) % 100 == 0:
                    await asyncio.sleep(0.001)

    process.create_task(work())
    place.run(5_000, 30)
    assert max(most) > 400


@pytest.mark.parametrize("how", ["callback", "in order"])
def test_a_worker_that_was_frozen_does_not_handle_what_went_to_another_one(
    place: Place, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    place.filled(100)
    frozen = place.work("frozen", 0.5, how, max_messages=50)
    place.universe.run(place.universe.now + 5)
    before = len(place.by["frozen"])
    frozen.freeze()
    place.work("other", 0.01, "callback")
    place.universe.run(place.universe.now + 2 * ACK_WAIT_S)
    frozen.thaw()
    place.run(100, 120)
    twice = [sequence for sequence, times in place.handled.items() if times > 1]
    assert len(place.by["frozen"]) == before
    assert len(twice) <= 1  # what it had in hand
    told = [line for line in caplog.messages if "stood still" in line]
    assert len(told) == 1 and "belongs on a thread" in told[0]


@pytest.mark.parametrize("how", ["iterated", "in order"])
def test_what_is_held_without_a_link_is_let_go_of_before_it_is_delivered_again(
    place: Place, how: str
) -> None:
    place.filled(100)
    cut = place.work("cut", 0.5, how, max_messages=100)
    place.universe.run(place.universe.now + 3)
    place.network.refusing.add("cut")
    for wire in place.network.wires_of(cut):
        wire.reset()
    place.work("other", 0.01, "callback")
    place.universe.run(place.universe.now + 3 * ACK_WAIT_S)
    in_time = list(place.by["cut"])
    assert len(in_time) <= 2 * ACK_WAIT_S * 0.8 + 6  # what it began before it was cut, too
    place.network.refusing.clear()
    place.run(100, 60)
    assert len(place.by["cut"]) == len(in_time)
    assert set(place.by["other"]) | set(in_time) == set(range(1, 101))
