"""Consuming: the buffer, the end, errors, priority groups; against the reference server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import pytest

import peers
from headrace.client import Connection, Consumer, JetStream, JetStreamMessage, Stream, connect
from headrace.client.events import ConsumptionEnded
from headrace.errors import (
    ConfigurationError,
    ConnectionClosedError,
    ConsumerNotFoundError,
    HeartbeatMissedError,
    NoRespondersError,
    PullError,
    StreamNotFoundError,
)
from listening import Listening
from waiting import elapse, until, until_pulling

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def fill(js: JetStream, stream: Stream, count: int, size: int = 10) -> None:
    async with js.publisher() as publisher:
        await publisher.send_many((f"{stream.name}.a", b"x" * size) for _ in range(count))


@pytest.mark.parametrize(
    "limits",
    [{}, {"max_messages": 1}, {"max_messages": 7, "threshold_messages": 7}, {"max_bytes": 2_000}],
)
async def test_everything_comes_in_order_whatever_the_buffer(
    js: JetStream,
    stream: Stream,
    limits: dict[str, int],
    ack_pending: Callable[[Consumer, int], Awaitable[None]],
) -> None:
    await fill(js, stream, 500)
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[int] = []
    async with consumer.consume(**limits) as messages:  # type: ignore[arg-type]
        async for message in messages:
            seen.append(message.metadata.stream_seq)
            message.ack()
            assert messages.buffered <= 500
            if len(seen) == 500:
                break
    assert seen == list(range(1, 501))
    await ack_pending(consumer, 0)


async def test_batches_give_what_has_come(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3_000)
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=-1)
    seen = 0
    async with consumer.consume(max_messages=1_000) as messages:
        async for batch in messages.batches(400):
            assert 1 <= len(batch) <= 400
            consumer.ack_all(batch)
            seen += len(batch)
            if seen == 3_000:
                break


async def test_the_buffer_never_holds_more_than_asked_for(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 100)
    consumer = await stream.create_consumer(durable_name="c")
    async with consumer.consume(max_messages=10) as messages:
        await until(lambda: messages.buffered >= 10)
        await elapse(0.05, "more would come now")
        assert messages.buffered == 10
        assert (await consumer.info()).num_ack_pending == 10


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_callback_gets_each_message_in_turn(
    js: JetStream, stream: Stream, kind: str
) -> None:
    await fill(js, stream, 600)
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[int] = []
    enough = asyncio.Event()

    def plain(message: JetStreamMessage) -> None:
        seen.append(message.metadata.stream_seq)
        message.ack()
        if len(seen) == 600:
            enough.set()

    async def coroutine(message: JetStreamMessage) -> None:
        await asyncio.sleep(0)
        plain(message)

    consumption = consumer.consume(plain if kind == "plain" else coroutine)
    await asyncio.wait_for(enough.wait(), 10)
    await consumption.stop()
    await consumption.wait()
    assert seen == list(range(1, 601))


async def test_an_error_in_a_callback_is_reported_and_the_next_message_comes(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(durable_name="c")
    errors: list[Exception] = []
    seen = asyncio.Event()

    def callback(message: JetStreamMessage) -> None:
        if message.metadata.stream_seq == 1:
            raise ValueError("not this one")
        seen.set()

    async with consumer.consume(callback, on_error=errors.append):
        await asyncio.wait_for(seen.wait(), 5)
    assert [str(error) for error in errors] == ["not this one"]


async def test_an_error_in_a_callback_is_logged_with_its_message(
    js: JetStream, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(durable_name="c")
    seen = asyncio.Event()

    def callback(message: JetStreamMessage) -> None:
        if message.metadata.stream_seq == 1:
            raise ValueError("not this one")
        seen.set()

    async with consumer.consume(callback):
        await asyncio.wait_for(seen.wait(), 5)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == (
        f"the callback of consumer 'c' of stream '{stream.name}', subject {stream.name}.a, "
        "sequence 1, delivery 1: not this one"
    )
    assert record.exc_info


async def test_stopping_sends_the_buffer_back_at_once(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 50)
    consumer = await stream.create_consumer(durable_name="c", ack_wait=30)
    async with consumer.consume(max_messages=500) as messages:
        first = await anext(messages)
        await first.ack()
        await until(lambda: messages.buffered == 49)
    batch = await consumer.fetch(49, max_wait=15, eager=False)
    assert sorted(m.metadata.stream_seq for m in batch) == list(range(2, 51))
    assert [m async for m in messages] == []


async def test_draining_hands_out_what_came_and_pulls_no_more(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 50)
    consumer = await stream.create_consumer(durable_name="c")
    messages = consumer.consume(max_messages=20)
    await until(lambda: messages.buffered == 20)
    draining = asyncio.create_task(messages.drain())
    seen = 0
    async for message in messages:
        await message.ack()
        seen += 1
    await draining
    assert seen == 20
    assert (await consumer.info()).num_pending == 30


async def test_draining_the_connection_drains_a_consume(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 30)
    await stream.create_consumer(durable_name="c")
    other = await connect(reference_server.url)
    seen: list[bytes] = []

    async def slowly(message: JetStreamMessage) -> None:
        await asyncio.sleep(0.001)
        seen.append(message.payload)
        await message.ack()

    consumption = (await other.jetstream().consumer(stream.name, "c")).consume(slowly)
    await until(lambda: len(seen) >= 5, within=5)
    await other.drain()
    await consumption.wait()
    assert len(seen) == 30


async def test_a_deleted_consumer_ends_it_with_an_error_an_event_and_one_line_in_the_log(
    js: JetStream, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    events = js.connection.events()
    consumption = consumer.consume(lambda message: None)
    assert consumption.state == "running"
    await until_pulling(consumer)
    await consumer.delete()
    with pytest.raises(PullError, match=r"Consumer Deleted: 'c' of stream"):
        await asyncio.wait_for(consumption.wait(), 5)
    with pytest.raises(PullError):
        await anext(consumption)
    assert (consumption.state, consumption.error) == ("failed", consumption._feed.error)
    event = await asyncio.wait_for(anext(events), 5)
    assert isinstance(event, ConsumptionEnded)
    assert event.error is consumption.error
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "'c' of stream" in errors[0] and "Consumer Deleted" in errors[0]


async def test_a_missing_consumer_is_reported_and_waited_for_where_that_is_wanted(
    js: JetStream, stream: Stream
) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    await consumer.delete()
    errors: list[Exception] = []
    async with consumer.consume(on_error=errors.append, if_gone="wait") as messages:
        waiting = asyncio.create_task(anext(messages))
        await until(lambda: errors)
        await stream.create_consumer(durable_name="c")
        await js.publish(f"{stream.name}.a", b"late")
        message = await asyncio.wait_for(waiting, 5)
        assert message.payload == b"late"
    assert isinstance(errors[0], NoRespondersError)


@pytest.mark.parametrize("kind", ["callback", "iterated"])
async def test_a_consumer_that_is_gone_ends_it(stream: Stream, kind: str) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    await consumer.delete()
    consumption = consumer.consume(
        (lambda message: None) if kind == "callback" else None, on_error=lambda error: None
    )
    with pytest.raises(ConsumerNotFoundError):
        await asyncio.wait_for(consumption.wait() if kind == "callback" else anext(consumption), 5)
    assert consumption.state == "failed"


async def test_a_stream_that_is_gone_ends_it(js: JetStream) -> None:
    stream = await js.create_stream(name="GONE", subjects=["gone"], storage="memory")
    consumer = await stream.create_consumer(durable_name="c")
    await stream.delete()
    consumption = consumer.consume(on_error=lambda error: None)
    with pytest.raises(StreamNotFoundError):
        await asyncio.wait_for(anext(consumption), 5)


async def test_a_consumer_that_is_gone_is_made_again_where_that_is_wanted(
    js: JetStream, stream: Stream
) -> None:
    consumer = await stream.create_or_update_consumer(durable_name="c", ack_wait=17)
    await fill(js, stream, 1)
    async with consumer.consume(on_error=lambda error: None, if_gone="create") as messages:
        (await anext(messages)).ack()
        await consumer.delete()  # nobody waits for a message now
        message = await asyncio.wait_for(anext(messages), 5)
        assert message.payload == b"x" * 10
        message.ack()
        waiting = asyncio.create_task(anext(messages))
        await until_pulling(consumer)
        await consumer.delete()
        assert (await asyncio.wait_for(waiting, 5)).metadata.stream_seq == 1
    assert (await consumer.info()).config.ack_wait == 17
    with pytest.raises(ConfigurationError, match="if_gone is 'no'"):
        consumer.consume(if_gone="no")  # type: ignore[arg-type]


async def test_a_limit_of_the_consumer_is_learned_and_reported(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 100)
    consumer = await stream.create_consumer(durable_name="c", max_batch=10, max_expires=2)
    errors: list[Exception] = []
    seen = 0
    async with consumer.consume(on_error=errors.append) as messages:
        async for message in messages:
            message.ack()
            seen += 1
            if seen == 100:
                break
    assert {str(error) for error in errors} == {
        "409 Exceeded MaxRequestBatch of 10",
        "409 Exceeded MaxRequestExpires of 2s",
    }


async def test_pulls_are_renewed_when_they_expire(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    errors: list[Exception] = []
    async with consumer.consume(expires=1, on_error=errors.append) as messages:
        waiting = asyncio.create_task(anext(messages))
        await elapse(1.3, "the first pull lasts a second")
        await js.publish(f"{stream.name}.a", b"late")
        assert (await asyncio.wait_for(waiting, 2)).payload == b"late"
    assert errors == []


async def test_closing_the_connection_ends_it_with_an_error(
    reference_server: peers.ServerProcess,
) -> None:
    connection = await connect(reference_server.url)
    js = connection.jetstream()
    stream = await js.create_stream(name="ENDING", subjects=["ending"], storage="memory")
    consumption = (await stream.create_consumer(durable_name="c")).consume(lambda message: None)
    await stream.delete()
    await connection.close()
    with pytest.raises((ConnectionClosedError, PullError)):
        await consumption.wait()


async def test_it_goes_on_after_a_killed_server_comes_back(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server(sync="always")
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        consumer = await stream.create_consumer(durable_name="c")
        async with consumer.consume(on_error=lambda error: None) as messages:
            await js.publish("s.a", b"1")
            first = await anext(messages)
            await first.ack_sync()
            server.kill()
            await asyncio.wait_for(anext(connection.events()), 5)
            server.start_again()
            await connection.flush(5)
            await js.publish("s.a", b"2", retries=20)
            following = await asyncio.wait_for(anext(messages), 10)
            if following.payload == b"1":  # nats-server may forget an ack when it is killed
                following = await asyncio.wait_for(anext(messages), 10)
            assert following.payload == b"2"


@pytest.mark.parametrize("if_gone", ["end", "create"])
async def test_a_consumer_that_does_not_outlive_its_server_ends_it_or_is_made_again(
    nats_server: Callable[..., peers.ServerProcess], if_gone: Literal["end", "create"]
) -> None:
    server = nats_server(sync="always")
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        consumer = await stream.create_or_update_consumer(name="c", mem_storage=True)
        seen: list[bytes] = []

        def handle(message: JetStreamMessage) -> None:
            seen.append(message.payload)
            message.ack()

        consumption = consumer.consume(handle, on_error=lambda error: None, if_gone=if_gone)
        await js.publish("s.a", b"1")
        await until(lambda: seen)
        server.kill()
        await until(lambda: not connection.is_connected)
        server.start_again()
        await connection.flush(5)
        if if_gone == "end":
            with pytest.raises(ConsumerNotFoundError):
                await asyncio.wait_for(consumption.wait(), 10)
        else:
            await js.publish("s.a", b"2", retries=20)
            await until(lambda: b"2" in seen)
            assert consumption.state == "running"
            await consumption.stop()


async def test_silence_is_reported_and_pulled_anew() -> None:
    """A server that forgets its pulls: no message, no heartbeat, no status."""
    pulls: list[bytes] = []
    enough = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"headers":true,"max_payload":1000}\r\n')
        while line := await reader.readline():
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
            if line.startswith(b"{"):
                pulls.append(line)
                if len(pulls) == 2:
                    enough.set()

    errors: list[Exception] = []
    async with Listening(serve) as server, connect(server.url) as connection:
        from headrace.client.jetstream.calls import Api
        from headrace.client.jetstream.consumer import Consumer

        consumer = Consumer(Api(connection._session), "S", "c")
        async with consumer.consume(expires=1, on_error=errors.append):
            await asyncio.wait_for(enough.wait(), 5)
    assert isinstance(errors[0], HeartbeatMissedError)
    assert pulls[0] == pulls[1]


# Priority groups


@pytest.fixture
async def second(reference_server: peers.ServerProcess) -> AsyncIterator[Connection]:
    async with connect(reference_server.url) as connection:
        yield connection


async def test_only_the_pinned_client_receives_until_it_is_unpinned(
    js: JetStream, stream: Stream, second: Connection
) -> None:
    mine = await stream.create_consumer(
        durable_name="c",
        priority_policy="pinned_client",
        priority_groups=["A"],
        priority_timeout=30,
        max_ack_pending=-1,
    )
    other = await second.jetstream().consumer(stream.name, "c")
    pinned: list[Any] = []
    unpinned = asyncio.Event()
    mine.on_pinned(pinned.append)
    mine.on_unpinned(unpinned.set)
    async with mine.consume(group="A", expires=1) as ours:
        await until_pulling(mine)
        async with other.consume(group="A", expires=1) as theirs:
            await fill(js, stream, 5)
            for _ in range(5):
                (await anext(ours)).ack()
            assert pinned == [mine.pin_id]
            assert theirs.buffered == 0
            await mine.unpin("A")
            await fill(js, stream, 5)
            for _ in range(5):
                (await asyncio.wait_for(anext(theirs), 5)).ack()
            assert other.pin_id
            await asyncio.wait_for(unpinned.wait(), 5)
            assert mine.pin_id == ""


async def test_a_full_buffer_does_not_lose_the_pin(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 100)
    consumer = await stream.create_consumer(
        durable_name="c",
        priority_policy="pinned_client",
        priority_groups=["A"],
        priority_timeout=2,  # a second longer than its pulls: a machine may stall
        max_ack_pending=-1,
    )
    lost: list[bool] = []
    consumer.on_unpinned(lambda: lost.append(True))
    async with consumer.consume(group="A", expires=1, max_messages=10) as messages:
        (await anext(messages)).ack()
        pin = consumer.pin_id
        await elapse(4, "a slow handler takes nothing for longer than the pin lasts")
        info = await consumer.info()
        assert info.priority_groups[0].pinned_client_id == pin
        assert messages.buffered == 9
        for _ in range(99):
            (await asyncio.wait_for(anext(messages), 5)).ack()
    assert lost == []


async def test_groups_are_checked_before_pulling(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(
        durable_name="c", priority_policy="overflow", priority_groups=["A"]
    )
    with pytest.raises(ConfigurationError, match=r"needs group=.*A"):
        await consumer.fetch(1)
    with pytest.raises(ConfigurationError, match="no priority group 'B'"):
        consumer.consume(group="B")
    with pytest.raises(ConfigurationError, match="priority is 10"):
        await consumer.fetch(1, group="A", priority=10)


async def test_overflow_and_priority_options_reach_the_server(
    js: JetStream, stream: Stream
) -> None:
    consumer = await stream.create_consumer(
        durable_name="o", priority_policy="overflow", priority_groups=["A"]
    )
    await fill(js, stream, 5)
    assert not await consumer.fetch(5, max_wait=0.2, group="A", min_pending=100)
    assert len(await consumer.fetch(5, max_wait=2, group="A", min_pending=1)) == 5
    by_priority = await stream.create_consumer(
        durable_name="p",
        priority_policy="prioritized",
        priority_groups=["A"],
        deliver_policy="new",
    )
    late = asyncio.create_task(by_priority.fetch(1, max_wait=0.5, group="A", priority=5))
    await until_pulling(by_priority)
    soon = asyncio.create_task(by_priority.fetch(1, max_wait=5, group="A", priority=1))
    await until_pulling(by_priority, 2)
    await js.publish(f"{stream.name}.a")
    assert len(await soon) == 1
    assert len(await late) == 0
