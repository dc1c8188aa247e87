"""What a member has in hand or waiting when its server is restarted or delivers it again: it goes to the next
owner at once, and nothing is handled again once its acknowledgement is confirmed. On both servers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace import ConsumerConfig, StreamConfig, SubjectTransformConfig
from headrace.api.acks import NAK
from headrace.client import JetStream, connect
from headrace.errors import HeadraceError
from headrace.groups import GroupMessage, Layout, Membership, static
from waiting import until

LONG_S = 60.0
"""An ``ack_wait`` that nobody waits for here."""

SOON_S = 20.0
COUNT = 6


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    yield from peers.either_running(request.param, tmp_path, durable=True)


async def _make(js: JetStream, partitions: int = 1, layout: Layout = "interoperable") -> None:
    """A stream with so many partitions, and a static group with one member."""
    dest = f"{{{{partition({partitions},1)}}}}.s.{{{{wildcard(1)}}}}"
    transform = SubjectTransformConfig(src="s.*", dest=dest)
    await js.create_stream(StreamConfig(name="S", subjects=("s.*",), subject_transform=transform))
    await static.create(js, "S", "g", partitions, members=("m",), layout=layout)


def _join(
    js: JetStream, handler: Callable[[GroupMessage], Any], concurrency: int = 1, **options: Any
) -> Membership[Any]:
    config = ConsumerConfig(ack_wait=LONG_S, max_ack_pending=50)
    return static.join(js, "S", "g", "m", handler, config, concurrency=concurrency, **options)


class Handler:
    """Keeps the first message until the gate is open, and notes what comes though it is confirmed."""

    def __init__(self) -> None:
        self.first: asyncio.Future[GroupMessage] = asyncio.get_running_loop().create_future()
        self.gate = asyncio.Event()
        self.begun: Counter[bytes] = Counter()
        self.confirmed: set[bytes] = set()
        self.wrong: list[bytes] = []

    def begin(self, message: GroupMessage) -> None:
        if message.payload in self.confirmed:
            self.wrong.append(message.payload)
        self.begun[message.payload] += 1
        if not self.first.done():
            self.first.set_result(message)

    async def end(self, message: GroupMessage) -> None:
        with contextlib.suppress(HeadraceError):
            await message.ack_sync()
            self.confirmed.add(message.payload)

    async def __call__(self, message: GroupMessage) -> None:
        self.begin(message)
        await self.gate.wait()
        await self.end(message)


def _on_a_thread(handler: Handler) -> Callable[[GroupMessage], Awaitable[None]]:
    """A plain function, which hands back what is to be awaited."""
    loop, opened = asyncio.get_running_loop(), threading.Event()

    async def open_later() -> None:
        await handler.gate.wait()
        opened.set()

    handler.opening = asyncio.create_task(open_later())  # type: ignore[attr-defined]

    def handle(message: GroupMessage) -> Awaitable[None]:
        loop.call_soon_threadsafe(handler.begin, message)
        assert opened.wait(60)
        return handler.end(message)

    return handle


@pytest.mark.parametrize("way", ["in turn", "abreast", "on a thread"])
async def test_what_comes_again_while_it_is_handled_is_not_handled_again_once_it_is_confirmed(
    server: peers.ServerProcess, way: str
) -> None:
    async with connect(server.url) as connection, connect(server.url) as other:
        js = connection.jetstream()
        await _make(js)
        handler = Handler()
        called = _on_a_thread(handler) if way == "on a thread" else handler
        async with _join(js, called, 3 if way == "abreast" else 1):
            await js.publish("s.a", b"0")
            first = await asyncio.wait_for(handler.first, SOON_S)
            consumer = await js.consumer("S", first.metadata.consumer)
            # As when its time was over, or somebody else's answer came late.
            await other.publish(first.reply, NAK)
            await other.flush()

            async def is_delivered_again() -> bool:
                return (await consumer.info()).num_redelivered == 1

            async with asyncio.timeout(SOON_S):
                while not await is_delivered_again():
                    await asyncio.sleep(0)
            for number in range(1, COUNT):
                await js.publish("s.a", b"%d" % number)
            handler.gate.set()
            await until(lambda: len(handler.confirmed) == COUNT, within=SOON_S)
        assert handler.wrong == []
        assert handler.begun[b"0"] == 1


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_what_a_killed_server_knows_to_be_in_hand_goes_on_long_before_its_time_is_over(
    server: peers.ServerProcess, instances: int, concurrency: int
) -> None:
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.1) as connection:
        js = connection.jetstream()
        await _make(js)
        handler = Handler()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(instances):
                await stack.enter_async_context(_join(js, handler, concurrency))
            for number in range(COUNT):
                await js.publish(f"s.{number % 2}", b"%d" % number)
            first = await asyncio.wait_for(handler.first, SOON_S)
            consumer = await js.consumer("S", first.metadata.consumer)
            async with asyncio.timeout(SOON_S):
                while (await consumer.info()).num_ack_pending < COUNT:
                    await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start_again)
            await until(lambda: connection.reconnects and connection.is_connected, within=LONG_S)
            handler.gate.set()
            await until(lambda: len(handler.confirmed) == COUNT, within=SOON_S)
        assert handler.wrong == []


@pytest.mark.parametrize("end", ["leaves", "steps down"])
@pytest.mark.parametrize("way", ["in turn", "abreast", "on a thread"])
async def test_what_waits_for_a_place_among_the_handlers_goes_to_the_next_owner_at_once(
    server: peers.ServerProcess, way: str, end: str
) -> None:
    """Consumers of several partitions share the places, and those of one partition have them all."""
    if end == "steps down" and server.name == "headrace":
        pytest.skip("it waits until the one who steps down is done with what it has")
    async with connect(server.url) as connection:
        js = connection.jetstream()
        await _make(js, 2, "per_partition")
        busy: list[GroupMessage] = []
        other: list[bytes] = []
        gate = threading.Event()
        opened = asyncio.Event()

        async def first(message: GroupMessage) -> None:
            busy.append(message)
            await opened.wait()

        def first_on_a_thread(message: GroupMessage) -> None:
            busy.append(message)
            assert gate.wait(60)

        def second(message: GroupMessage) -> None:
            if message.partition != busy[0].partition:
                other.append(message.payload)
            message.ack()

        stream = await js.stream("S")
        keys: dict[str, list[str]] = {"0": [], "1": []}
        for key in map(str, range(20)):
            stored = await stream.get_message((await js.publish(f"s.{key}", b"")).seq)
            keys[stored.subject.split(".")[0]].append(key)
        await stream.purge()
        called = first_on_a_thread if way == "on a thread" else first
        places = 1 if way == "in turn" else 2
        async with contextlib.AsyncExitStack() as stack:
            membership = await stack.enter_async_context(
                _join(js, called, places, key=lambda message: message.subject)
            )
            stack.callback(gate.set)
            stack.callback(opened.set)
            for key in keys["0"][:places]:
                await js.publish(f"s.{key}", b"")
            await until(lambda: len(busy) == places, "the places are not taken", within=SOON_S)
            for number in range(COUNT):
                await js.publish(f"s.{keys['1'][number % 3]}", b"%d" % number)
            shared = membership._shared
            assert shared is not None
            limit = shared.limit
            assert limit is not None
            await until(lambda: limit.is_wanted, "nobody waits for a place", within=SOON_S)
            await stack.enter_async_context(_join(js, second))
            async with asyncio.timeout(SOON_S):
                while not all([each.num_waiting > 1 async for each in stream.consumers()]):
                    await asyncio.sleep(0)
            if end == "leaves":
                leaving = asyncio.create_task(membership.leave())
                stack.push_async_callback(asyncio.wait, [leaving])
            else:
                await static.step_down(js, "S", "g", "m")
            # The next message finds the new owner, and by it the former one hears that it is no more.
            await js.publish(f"s.{keys['1'][0]}", b"%d" % COUNT)
            await until(lambda: len(other) > COUNT, "not all came", within=SOON_S)
            gate.set()
            opened.set()
        assert other == [b"%d" % number for number in range(COUNT + 1)]
        assert len(busy) == places
