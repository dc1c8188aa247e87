"""What callbacks may be, do and go wrong with: of subscriptions, of a consume, of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import peers
from headrace.client import Connection, JetStream, JetStreamMessage, Message, Stream, connect
from headrace.client.events import ErrorEvent, Event
from headrace.errors import ConfigurationError, ConnectionClosedError
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


class Handler:
    """A callable object whose call is a coroutine function."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        await asyncio.sleep(0)
        self.seen.append(message.payload)


async def publish(js: JetStream, stream: Stream, count: int) -> None:
    for number in range(count):
        await js.publish(f"{stream.name}.x", b"%d" % number)


def called_by(handler: Handler, form: str) -> Callable[[Message], object]:
    return handler if form == "object" else lambda message: handler(message)


@pytest.mark.parametrize("form", ["object", "lambda"])
async def test_whatever_gives_a_coroutine_is_awaited_in_turn(
    connection: Connection, js: JetStream, stream: Stream, form: str
) -> None:
    plain, consumed = Handler(), Handler()
    await connection.subscribe("callbacks", callback=called_by(plain, form))
    await publish(js, stream, 5)
    consumer = await stream.create_consumer()
    consumption = consumer.consume(called_by(consumed, form))
    for number in range(5):
        await connection.publish("callbacks", b"%d" % number)
    await until(lambda: not (len(plain.seen) < 5 or len(consumed.seen) < 5), within=5)
    assert plain.seen == consumed.seen == [b"0", b"1", b"2", b"3", b"4"]
    await consumption.stop()


async def test_a_cancelled_wait_inside_a_callback_is_an_error_of_this_message_alone(
    reference_server: peers.ServerProcess,
) -> None:
    events: list[Event] = []
    async with connect(reference_server.url, on_event=events.append) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="CB", subjects=["CB.>"], storage="memory")
        await publish(js, stream, 3)
        seen: list[bytes] = []

        async def handle(message: Message) -> None:
            seen.append(message.payload)
            if len(seen) == 2:
                gone = asyncio.get_running_loop().create_future()
                gone.cancel()
                await gone

        consumer = await stream.create_consumer()
        consumption = consumer.consume(handle)
        await connection.subscribe("cancelled", callback=handle)
        await until(lambda: len(seen) >= 3)
        await connection.publish("cancelled", b"more")
        await until(lambda: len(seen) >= 4)
        async with asyncio.timeout(5):
            await consumption.stop()
            await consumption.wait()
        errors = [event.error for event in events if isinstance(event, ErrorEvent)]
        assert len(errors) == 1
        assert "cancel" in str(errors[0])
        await stream.delete()


async def test_a_consume_whose_task_is_cancelled_is_over(js: JetStream, stream: Stream) -> None:
    await publish(js, stream, 3)
    begun = asyncio.Event()

    async def handle(message: JetStreamMessage) -> None:
        begun.set()
        await asyncio.Event().wait()  # as long as it is let

    consumer = await stream.create_consumer()
    consumption = consumer.consume(handle)
    await asyncio.wait_for(begun.wait(), 5)
    assert consumption._feed.worker is not None
    consumption._feed.worker.cancel()
    await asyncio.wait_for(consumption.wait(), 5)
    batch = await consumer.fetch(2, max_wait=2)  # those in the buffer were sent back
    assert len(batch) == 2


async def test_a_consume_is_drained_from_its_own_callback(js: JetStream, stream: Stream) -> None:
    await publish(js, stream, 10)
    seen: list[bytes] = []

    async def handle(message: JetStreamMessage) -> None:
        seen.append(message.payload)
        if len(seen) == 1:
            await until(all_are_sent)
            await js.connection.flush()  # what was sent has arrived
            await consumption.drain()
        message.ack()

    async def all_are_sent() -> bool:
        return (await consumer.info()).num_ack_pending == 10

    consumer = await stream.create_consumer()
    consumption = consumer.consume(handle, max_messages=500)
    await asyncio.wait_for(consumption.wait(), 10)
    assert len(seen) == 10


async def test_waiting_for_a_consume_inside_its_callback_is_refused(
    js: JetStream, stream: Stream
) -> None:
    await publish(js, stream, 1)
    refused: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def handle(message: JetStreamMessage) -> None:
        try:
            await consumption.wait()
        except ConfigurationError as error:
            refused.set_result(error)

    consumption = (await stream.create_consumer()).consume(handle)
    assert "callback" in str(await asyncio.wait_for(refused, 5))
    await consumption.stop()


@pytest.mark.parametrize("what", ["subscription", "connection"])
async def test_draining_from_a_subscription_s_own_callback_ends_soon(
    reference_server: peers.ServerProcess, what: str
) -> None:
    connection = await connect(reference_server.url)
    ended = asyncio.Event()
    seen: list[bytes] = []

    async def handle(message: Message) -> None:
        seen.append(message.payload)
        if message.payload == b"0":
            await (subscription if what == "subscription" else connection).drain()
            ended.set()

    subscription = await connection.subscribe("quit", callback=handle)
    for number in range(3):
        await connection.publish("quit", b"%d" % number)
    await asyncio.wait_for(ended.wait(), 5)
    if what == "subscription":
        await subscription.drain()
        assert seen == [b"0", b"1", b"2"]
        await connection.close()
    assert connection.is_closed


async def test_a_drain_of_the_connection_that_gives_up_ends_every_consume(
    reference_server: peers.ServerProcess,
) -> None:
    connection = await connect(reference_server.url, drain_timeout=0.2)
    stream = await connection.jetstream().create_stream(
        name="DRAINED", subjects=["DRAINED.>"], storage="memory"
    )
    await connection.jetstream().publish("DRAINED.1")
    taken = (await stream.create_consumer()).consume()
    idle = (await stream.create_consumer(filter_subject="DRAINED.none")).consume()
    waiting = asyncio.ensure_future(anext(idle))
    await until(lambda: taken.buffered, within=5)
    pongs = connection._session.keepalive._pongs
    pongs.append(None)  # the server owes an answer: ours comes too late
    await connection.drain()
    with pytest.raises((StopAsyncIteration, ConnectionClosedError)):
        await asyncio.wait_for(waiting, 2)
    assert not connection._session.observers


async def test_a_cancelled_drain_still_ends_a_consume(js: JetStream, stream: Stream) -> None:
    consumption = (await stream.create_consumer()).consume()
    waiting = asyncio.ensure_future(anext(consumption))
    draining = asyncio.ensure_future(consumption.drain())
    await asyncio.sleep(0)
    draining.cancel()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 2)


async def test_a_cancelled_drain_still_ends_a_subscription(connection: Connection) -> None:
    subscription = await connection.subscribe("cancelled.drain")
    waiting = asyncio.ensure_future(anext(subscription))
    draining = asyncio.ensure_future(subscription.drain())
    await asyncio.sleep(0)
    draining.cancel()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 2)
    assert connection.stats().subscriptions == 0


@pytest.mark.parametrize("option", ["on_event"])
async def test_a_coroutine_function_where_a_plain_one_is_needed_is_refused(option: str) -> None:
    async def handle(event: Event) -> None: ...

    with pytest.raises(ConfigurationError, match=f"{option} .*plain function"):
        connect("nats://127.0.0.1:1", on_event=handle)


async def test_what_handlers_publish_during_a_drain_is_sent(
    connection: Connection, reference_server: peers.ServerProcess
) -> None:
    results = await connection.subscribe("results")
    working = await connect(reference_server.url)
    drains = asyncio.Event()

    async def work(message: Message) -> None:
        await drains.wait()
        await working.publish("results", message.payload)

    await working.subscribe("work", callback=work)
    for number in range(5):
        await working.publish("work", b"%d" % number)
    await connection.flush()
    draining = asyncio.ensure_future(working.drain())
    await asyncio.sleep(0)
    drains.set()
    await draining
    assert [(await results.next(2)).payload for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(ConnectionClosedError):
        await working.publish("results")


async def test_events_are_kept_from_the_moment_they_are_asked_for(
    reference_server: peers.ServerProcess,
) -> None:
    connection = await connect(reference_server.url)
    events = connection.events()
    await connection.close()
    assert [type(event).__name__ async for event in events] == ["Closed"]
    assert [event async for event in connection.events()] == []
