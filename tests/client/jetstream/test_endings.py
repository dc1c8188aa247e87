"""What becomes of messages when whoever works on them goes: in hand, in the buffer, on their way."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import chaos
import peers
from headrace.client import Connection, Consumer, JetStream, JetStreamMessage, Stream, connect
from headrace.client.events import ErrorEvent, Event
from headrace.errors import ConnectionClosedError
from waiting import until, until_delivered

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

ACK_WAIT_S = 4.0


async def fill(js: JetStream, stream: Stream, count: int) -> None:
    async with js.publisher() as publisher:
        await publisher.send_many((f"{stream.name}.a", b"%d" % i) for i in range(1, count + 1))


async def work_for(seconds: float) -> None:
    """What a handler does."""
    await asyncio.sleep(seconds)


def sequence(message: JetStreamMessage) -> int:
    return message.metadata.stream_seq


async def rest_of(consumer: Consumer, count: int) -> list[int]:
    """What the next worker gets at once; more would be too many."""
    batch = await consumer.fetch(count + 5, max_wait=2)
    while batch and len(batch) < count and (more := await consumer.fetch(count, max_wait=2)):
        batch = [*batch, *more]  # type: ignore[assignment]
    for message in batch:
        message.ack()
    return sorted(map(sequence, batch))


@pytest.fixture
async def worker(reference_server: peers.ServerProcess) -> AsyncIterator[Connection]:
    """The connection of somebody who goes."""
    async with connect(reference_server.url, close_timeout=2) as connection:
        yield connection


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_no_callback_begins_after_close_and_the_buffer_goes_back_at_once(
    worker: Connection, js: JetStream, stream: Stream, kind: str
) -> None:
    await fill(js, stream, 300)
    consumer = await stream.create_consumer(durable_name="c")
    begun: list[int] = []
    some = asyncio.Event()

    def plain(message: JetStreamMessage) -> None:
        begun.append(sequence(message))
        if len(begun) == 20:
            some.set()
        message.ack()

    async def coroutine(message: JetStreamMessage) -> None:
        begun.append(sequence(message))
        if len(begun) == 20:
            some.set()
        await work_for(0.002)
        message.ack()

    theirs = await worker.jetstream().consumer(stream.name, "c")
    consumption = theirs.consume(plain if kind == "plain" else coroutine)
    async with worker:
        await asyncio.wait_for(some.wait(), 5)
    at_close = len(begun)
    with pytest.raises(ConnectionClosedError):
        await consumption.wait()
    assert consumption.state == "failed"
    rest = await rest_of(consumer, 300 - at_close)
    assert len(begun) == at_close
    assert sorted(begun + rest) == list(range(1, 301))


@pytest.mark.parametrize("how", ["stopped before", "closed twice at once", "left behind a batch"])
async def test_what_is_on_its_way_goes_back_however_close_comes_about(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream, how: str
) -> None:
    """The server delivers more before it reads that nobody listens any more: an end that does not wait for
    those would leave them to ``ack_wait``."""
    await fill(js, stream, 5)
    consumer = await stream.create_consumer(durable_name="c")
    ends, has_more = asyncio.Event(), asyncio.Event()

    async def passed(piece: bytes) -> bytes:
        if ends.is_set() and not has_more.is_set():
            await fill(js, stream, 5)
            await until_delivered(consumer, 10)
            has_more.set()
        return piece

    server = reference_server
    async with chaos.ChaosProxy(server.host, server.port, server.scheme, passed=passed) as proxy:
        worker = await connect(proxy.url)
        theirs = await worker.jetstream().consumer(stream.name, "c")
        consumption = theirs.consume(max_messages=100)
        (await anext(consumption)).ack()
        await worker.flush()
        await until_delivered(consumer, 5)
        if how == "left behind a batch":
            async with worker, consumption:
                await consumption.next_batch(2)
                ends.set()
        else:
            ends.set()
            if how == "stopped before":
                await consumption.stop()
                await worker.close()
            else:
                await asyncio.gather(worker.close(), worker.close())
        await asyncio.wait_for(has_more.wait(), 5)
    taken = 3 if how == "left behind a batch" else 1
    assert await rest_of(consumer, 10 - taken) == list(range(taken + 1, 11))


async def test_close_waits_until_the_server_has_read_what_goes_back_of_a_drained_consumption(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 5)
    consumer = await stream.create_consumer(durable_name="c")
    ends, is_held, may_pass = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def passed(piece: bytes) -> bytes:
        if ends.is_set():
            is_held.set()
            await may_pass.wait()
        return piece

    server = reference_server
    async with chaos.ChaosProxy(server.host, server.port, server.scheme, passed=passed) as proxy:
        worker = await connect(proxy.url)
        theirs = await worker.jetstream().consumer(stream.name, "c")
        consumption = theirs.consume(max_messages=100)
        await until(lambda: consumption.buffered == 5)
        draining = asyncio.create_task(consumption.drain())
        await until(lambda: consumption.state == "ended")
        ends.set()
        closing = asyncio.create_task(worker.close())
        await asyncio.wait_for(is_held.wait(), 5)
        done, _ = await asyncio.wait([closing], timeout=0.1)
        assert not done
        may_pass.set()
        await asyncio.wait_for(asyncio.gather(closing, draining), 5)
    assert await rest_of(consumer, 5) == [1, 2, 3, 4, 5]


async def test_a_callback_that_runs_at_close_may_acknowledge(
    worker: Connection,
    js: JetStream,
    stream: Stream,
    ack_pending: Callable[[Consumer, int], Awaitable[None]],
) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(durable_name="c")
    begun = asyncio.Event()

    async def handle(message: JetStreamMessage) -> None:
        begun.set()
        await work_for(0.1)
        message.ack()

    (await worker.jetstream().consumer(stream.name, "c")).consume(handle)
    await asyncio.wait_for(begun.wait(), 5)
    await worker.close()
    assert await rest_of(consumer, 1) == [2]
    await ack_pending(consumer, 0)


async def test_a_callback_that_runs_on_is_cancelled_in_time_and_its_message_goes_back(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    begun, cancelled = asyncio.Event(), asyncio.Event()
    events: list[Event] = []

    async def handle(message: JetStreamMessage) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with connect(
        reference_server.url, close_timeout=0.05, on_event=events.append
    ) as connection:
        (await connection.jetstream().consumer(stream.name, "c")).consume(handle)
        await asyncio.wait_for(begun.wait(), 5)
    assert cancelled.is_set()
    assert await rest_of(consumer, 1) == [1]
    errors = [str(event.error) for event in events if isinstance(event, ErrorEvent)]
    assert len(errors) == 1 and "close_timeout" in errors[0]


async def test_a_callback_may_close_its_connection(
    worker: Connection, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")

    async def handle(message: JetStreamMessage) -> None:
        message.ack()
        await worker.close()

    consumption = (await worker.jetstream().consumer(stream.name, "c")).consume(handle)
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(consumption.wait(), 1.5)
    assert await rest_of(consumer, 2) == [2, 3]


async def test_who_iterates_handles_its_message_before_the_connection_is_closed(
    worker: Connection, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 50)
    consumer = await stream.create_consumer(durable_name="c")
    handled: list[int] = []
    begun = asyncio.Event()

    async def work() -> None:
        theirs = await worker.jetstream().consumer(stream.name, "c")
        async with theirs.consume() as messages:
            async for message in messages:
                begun.set()
                await work_for(0.05)
                message.ack()
                handled.append(sequence(message))

    working = asyncio.create_task(work())
    await asyncio.wait_for(begun.wait(), 5)
    await worker.close()
    with pytest.raises(ConnectionClosedError):
        await working
    assert handled == [1]
    assert await rest_of(consumer, 49) == list(range(2, 51))


async def test_who_iterates_and_closes_does_not_wait_for_itself(
    worker: Connection, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    theirs = await worker.jetstream().consumer(stream.name, "c")
    async with asyncio.timeout(1.5), theirs.consume() as messages:
        async for message in messages:
            assert not message.is_answered
            await worker.close()
            break
    assert await rest_of(consumer, 2) == [2, 3]


async def test_a_fetch_under_way_gives_back_what_came_when_the_connection_is_closed(
    worker: Connection, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    theirs = await worker.jetstream().consumer(stream.name, "c")
    fetching = asyncio.create_task(theirs.fetch(10, max_wait=20, eager=False))

    async def are_out() -> bool:
        return (await consumer.info()).num_ack_pending == 3

    await until(are_out)
    await worker.close()
    with pytest.raises(ConnectionClosedError):
        await fetching
    assert await rest_of(consumer, 3) == [1, 2, 3]


async def test_a_drain_that_takes_too_long_gives_back_what_was_not_handled(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 30)
    consumer = await stream.create_consumer(durable_name="c")
    handled: list[int] = []

    async def handle(message: JetStreamMessage) -> None:
        await work_for(0.02)
        message.ack()
        handled.append(sequence(message))

    connection = await connect(reference_server.url, drain_timeout=0.1, on_event=lambda event: None)
    (await connection.jetstream().consumer(stream.name, "c")).consume(handle)
    await until(lambda: handled)
    await connection.drain()
    done = sorted(handled)
    assert len(done) < 30
    assert sorted(done + await rest_of(consumer, 30 - len(done))) == list(range(1, 31))
    assert sorted(handled) == done


async def test_a_drained_connection_lets_who_iterates_handle_the_last_message(
    worker: Connection,
    js: JetStream,
    stream: Stream,
    ack_pending: Callable[[Consumer, int], Awaitable[None]],
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    handled: list[int] = []

    async def work() -> None:
        theirs = await worker.jetstream().consumer(stream.name, "c")
        async with theirs.consume() as messages:
            async for message in messages:
                await work_for(0.03)
                message.ack()
                handled.append(sequence(message))

    working = asyncio.create_task(work())
    await until(lambda: handled)
    await worker.drain()
    await working
    rest = await rest_of(consumer, 3 - len(handled))
    assert sorted(handled + rest) == [1, 2, 3]
    await ack_pending(consumer, 0)


@pytest.mark.parametrize("kind", ["callback", "iterated"])
async def test_what_a_push_consumer_sent_goes_back_when_its_listener_goes(
    worker: Connection, js: JetStream, stream: Stream, kind: str, request: pytest.FixtureRequest
) -> None:
    """At once. What nats-server sends at the very moment a listener goes reaches nobody, and comes again
    after ``ack_wait``, which is seldom and one message."""
    await fill(js, stream, 40)
    subject = worker.new_inbox()
    consumer = await stream.create_consumer(
        durable_name="c", deliver_subject=subject, ack_wait=ACK_WAIT_S
    )
    begun: list[int] = []

    async def handle(message: JetStreamMessage) -> None:
        begun.append(sequence(message))
        await work_for(0.005)
        message.ack()

    theirs = await worker.jetstream().consumer(stream.name, "c")
    listening = await theirs.listen(handle if kind == "callback" else None)
    if kind == "callback":
        await until(lambda: len(begun) >= 3)
    else:
        first = await listening.next(5)
        begun.append(sequence(first))
        first.ack()
    await worker.close()
    at_close = len(begun)
    async with await consumer.listen() as again:
        rest, late = [], 0
        for _ in range(40 - at_close):
            began = time.monotonic()
            rest.append(await again.next(3 * ACK_WAIT_S))
            rest[-1].ack()
            late += time.monotonic() - began > ACK_WAIT_S / 2
    assert late <= ("nats-server" in request.node.name)
    assert len(begun) == at_close
    assert sorted(begun + list(map(sequence, rest))) == list(range(1, 41))


async def test_a_fetch_under_way_gives_back_what_came_when_the_connection_is_drained(
    worker: Connection, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    theirs = await worker.jetstream().consumer(stream.name, "c")
    fetching = asyncio.create_task(theirs.fetch(10, max_wait=20, eager=False))

    async def are_out() -> bool:
        return (await consumer.info()).num_ack_pending == 3

    await until(are_out)
    await worker.drain()
    with pytest.raises(ConnectionClosedError):
        await fetching
    assert await rest_of(consumer, 3) == [1, 2, 3]


async def test_stopping_waits_for_the_callback_and_gives_back_the_rest(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    handled: list[int] = []
    begun = asyncio.Event()

    async def handle(message: JetStreamMessage) -> None:
        begun.set()
        await work_for(0.05)
        message.ack()
        handled.append(sequence(message))

    async with consumer.consume(handle, max_messages=20) as consumption:
        await asyncio.wait_for(begun.wait(), 5)
    assert handled == [1]
    assert consumption.state == "ended"
    assert await rest_of(consumer, 19) == list(range(2, 21))


@pytest.mark.parametrize("kind", ["callback", "iterated"])
async def test_draining_handles_what_was_sent_ahead(
    js: JetStream, stream: Stream, kind: str
) -> None:
    await fill(js, stream, 30)
    consumer = await stream.create_consumer(durable_name="c")
    handled: list[int] = []

    async def handle(message: JetStreamMessage) -> None:
        await work_for(0.002)
        message.ack()
        handled.append(sequence(message))

    consumption = consumer.consume(handle if kind == "callback" else None, max_messages=20)

    async def iterate() -> None:
        async for message in consumption:
            await handle(message)

    iterating = asyncio.create_task(iterate()) if kind == "iterated" else None
    await until(lambda: handled)
    await consumption.drain()
    done = len(handled)
    assert done >= 20 and consumption.state == "ended"
    if iterating is not None:
        await iterating
    assert sorted(handled + await rest_of(consumer, 30 - done)) == list(range(1, 31))


async def test_who_is_cancelled_while_it_iterates_gives_back_what_was_ahead(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    begun = asyncio.Event()

    async def work() -> None:
        async with consumer.consume(max_messages=20) as messages:
            async for message in messages:
                try:
                    begun.set()
                    await asyncio.Event().wait()
                finally:
                    message.nak()

    working = asyncio.create_task(work())
    await asyncio.wait_for(begun.wait(), 5)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert await rest_of(consumer, 20) == list(range(1, 21))


# Left behind, which the standard library warns of


async def taken_one(consumer: Consumer) -> int:
    """Leave the iteration after its first message."""
    async for message in consumer.consume(max_messages=100):
        message.ack()
        return sequence(message)
    raise AssertionError


async def taken_a_batch(consumer: Consumer) -> int:
    """As ``taken_one``, of batches."""
    async for messages in consumer.consume(max_messages=100).batches(1):
        messages[0].ack()
        break
    return sequence(messages[0])


async def held_and_left(consumer: Consumer) -> int:
    """As ``taken_one``, long after all has come."""
    messages = consumer.consume(max_messages=100)
    message = await anext(messages)
    message.ack()
    await until(lambda: messages.buffered == 9)
    return sequence(message)


@pytest.mark.parametrize("leave", [taken_one, taken_a_batch, held_and_left])
async def test_iteration_that_is_left_ends_the_consume_and_sends_the_buffer_back(
    js: JetStream, stream: Stream, leave: Callable[[Consumer], Awaitable[int]]
) -> None:
    await fill(js, stream, 10)
    consumer = await stream.create_consumer(durable_name="c", max_deliver=3)
    with pytest.warns(ResourceWarning, match=r"'c' of stream .* left open, made in .*\.py:\d+"):
        assert await leave(consumer) == 1
        await until(lambda: not js.connection._session.observers)
    assert await rest_of(consumer, 9) == list(range(2, 11))
    assert (await consumer.info()).num_waiting == 0  # nobody pulls


async def test_the_warning_names_the_line_that_let_go(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    with pytest.warns(ResourceWarning) as warned:
        await taken_one(consumer)
    first = taken_one.__code__.co_firstlineno
    assert (warned[0].filename, warned[0].lineno) == (__file__, first + 4)
    assert f"{__file__}:{first + 2};" in str(warned[0].message)


async def test_a_consume_with_a_callback_needs_nobody_who_holds_it(
    js: JetStream, stream: Stream
) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    seen: list[int] = []

    def handle(message: JetStreamMessage) -> None:
        message.ack()
        seen.append(sequence(message))

    consumer.consume(handle)
    gc.collect()
    await fill(js, stream, 10)
    await until(lambda: len(seen) == 10)
    await js.connection.close()


async def test_what_reads_in_order_and_is_left_ends_and_so_does_the_consumer_behind_it(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 10)

    async def leave() -> None:
        ordered = await stream.ordered_consumer()
        async for _ in ordered.consume():
            return

    with pytest.warns(ResourceWarning, match="OrderedConsumption of"):
        await leave()

        async def is_gone() -> bool:
            return not js.connection._session.observers and not [
                name async for name in stream.consumer_names()
            ]

        await until(is_gone)


async def test_a_watch_and_a_reader_that_are_left_end(js: JetStream) -> None:
    bucket = await js.create_key_value("LEFT", storage="memory")
    await bucket.put("a", b"1")
    store = await js.create_object_store("LEFT", storage="memory")
    await store.put("a", b"x" * 400_000)

    async def leave() -> None:
        async for _ in await bucket.watch():
            break
        reader = await store.open("a").__aenter__()
        async for _ in reader:
            break

    with pytest.warns(ResourceWarning):
        await leave()

        async def are_gone() -> bool:
            streams = [await js.stream(name) for name in ("KV_LEFT", "OBJ_LEFT")]
            names = [name for each in streams async for name in each.consumer_names()]
            return not js.connection._session.observers and not names

        await until(are_gone)
    await js.delete_key_value("LEFT")
    await js.delete_object_store("LEFT")
