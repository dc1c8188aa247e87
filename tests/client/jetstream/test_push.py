"""Listening to push consumers: messages, heartbeats, flow control, gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import peers
from headrace import sync
from headrace.client import Connection, Consumer, JetStream, JetStreamMessage, Stream, connect
from headrace.errors import ConfigurationError, HeartbeatMissedError
from waiting import elapse, until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

AckPending = Callable[[Consumer, int], Awaitable[None]]


async def publish(js: JetStream, stream: Stream, count: int, size: int = 1) -> None:
    async with js.publisher() as publisher:
        for number in range(count):
            await publisher.send(f"{stream.name}.x", b"%*d" % (size, number))


async def pushed(stream: Stream, **settings: Any) -> Consumer:
    subject = f"push.{stream.name}"
    return await stream.create_consumer(durable_name="p", deliver_subject=subject, **settings)


@pytest.mark.parametrize("form", ["iterated", "plain", "coroutine"])
async def test_messages_come_in_order_and_are_acknowledged(
    js: JetStream, stream: Stream, ack_pending: AckPending, form: str
) -> None:
    await publish(js, stream, 50)
    consumer = await pushed(stream)
    seen: list[bytes] = []

    def plain(message: JetStreamMessage) -> None:
        seen.append(message.payload)
        message.ack()

    async def coroutine(message: JetStreamMessage) -> None:
        await asyncio.sleep(0)
        plain(message)

    callback = {"plain": plain, "coroutine": coroutine}.get(form)
    async with await consumer.listen(callback) as messages, asyncio.timeout(5):
        while len(seen) < 50:
            if callback is None:
                plain(await messages.next(2))
            else:
                await until(lambda: len(seen) >= 50)
        assert seen == [b"%d" % number for number in range(50)]
        await ack_pending(consumer, 0)
        assert messages.missed == 0


async def test_a_queue_group_shares_what_is_pushed(
    js: JetStream, stream: Stream, reference_server: peers.ServerProcess
) -> None:
    consumer = await pushed(stream, deliver_group="workers")
    seen: list[tuple[int, bytes]] = []

    def note(number: int, message: JetStreamMessage) -> None:
        seen.append((number, message.payload))
        message.ack()

    async with connect(reference_server.url) as other:
        again = await other.jetstream().consumer(stream.name, "p")
        for number, one in enumerate((consumer, again)):
            await one.listen(partial(note, number))
        await other.flush()
        await js.connection.flush()
        await publish(js, stream, 60)
        await until(lambda: len(seen) >= 60, within=5)
        assert sorted(payload for _, payload in seen) == sorted(b"%d" % n for n in range(60))
        assert {number for number, _ in seen} == {0, 1}
        await js.connection.drain()


async def test_flow_control_is_answered_as_messages_are_taken(
    js: JetStream, stream: Stream
) -> None:
    """More than the server's window: without answers it would stop."""
    await publish(js, stream, 1500, size=8_000)
    consumer = await pushed(stream, ack_policy="none", flow_control=True, idle_heartbeat=5)
    async with await consumer.listen() as messages:
        async with asyncio.timeout(20):
            taken = 0
            while taken < 1500:
                batch = await messages.next_batch(100)
                assert batch
                taken += len(batch)
                await asyncio.sleep(0)
        assert (messages.missed, messages.dropped) == (0, 0)


async def test_silence_is_reported(js: JetStream, stream: Stream) -> None:
    consumer = await pushed(stream, idle_heartbeat=0.1)
    told: asyncio.Queue[Exception] = asyncio.Queue()
    async with await consumer.listen(on_error=told.put_nowait):
        await elapse(0.35, "heartbeats come, and nothing is missed")
        assert told.empty()
        await consumer.delete()
        assert isinstance(await asyncio.wait_for(told.get(), 2), HeartbeatMissedError)


async def test_what_went_missing_is_counted_and_reported(
    connection: Connection, js: JetStream, stream: Stream
) -> None:
    consumer = await pushed(stream, ack_policy="none", idle_heartbeat=0.1)
    told: list[Exception] = []
    async with await consumer.listen(on_error=told.append) as messages:
        await publish(js, stream, 1)
        await messages.next(2)
        arriving = messages._route.receive
        lost: list[Any] = []
        messages._route.receive = lost.extend  # on the way
        await publish(js, stream, 2)
        await until(lambda: len(lost) >= 2)
        messages._route.receive = arriving
        await until(lambda: messages.missed)
        assert messages.missed == 2
        assert "2 messages" in str(told[0])
        await connection.publish(messages.subject, b"somebody else's")
        assert (await messages.next(2)).payload == b"somebody else's"


async def test_each_kind_of_consumer_refuses_the_other_s_calls(stream: Stream) -> None:
    push = await pushed(stream)
    with pytest.raises(ConfigurationError, match=r"listen\(\) to it"):
        await push.fetch(1)
    with pytest.raises(ConfigurationError, match=r"listen\(\) to it"):
        push.consume()
    pull = await stream.create_consumer()
    with pytest.raises(ConfigurationError, match="use fetch, next or consume"):
        await pull.listen()


async def test_the_blocking_twin(
    js: JetStream, stream: Stream, reference_server: peers.ServerProcess
) -> None:
    await publish(js, stream, 5)
    consumer = await pushed(stream)

    def work() -> list[bytes]:
        with sync.connect(reference_server.url) as connection:
            with connection.jetstream().consumer(stream.name, "p").listen() as messages:
                taken = [messages.next(2) for _ in range(5)]
                for message in taken:
                    message.ack_sync()
                assert messages.missed == 0
            return [message.payload for message in taken]

    assert await asyncio.to_thread(work) == [b"0", b"1", b"2", b"3", b"4"]
    assert (await consumer.info()).num_ack_pending == 0
    await asyncio.get_running_loop().shutdown_default_executor()
