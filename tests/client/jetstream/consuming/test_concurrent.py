"""Several callbacks at once: order per key, threads, and what the table of ends says of them."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import peers
from headrace.client import Connection, Consumer, JetStream, JetStreamMessage, Stream, connect
from headrace.client.events import ErrorEvent, Event
from headrace.errors import ConfigurationError, ConnectionClosedError
from waiting import block, until

pytestmark = pytest.mark.peer

KINDS = ["coroutine", "plain"]
Pending = Callable[[Consumer, int], Awaitable[None]]


class Handler:
    """Counts what it is called with; waits for ``gate`` if there is one.

    Attributes:
        most: how many ran at once, at the most.
        overlaps: how often two of one key did.
    """

    def __init__(self, seconds: float = 0.01, gate: threading.Event | None = None) -> None:
        self.seconds = seconds
        self.gate = gate
        self.lock = threading.Lock()
        self.begun: list[int] = []
        self.handled: list[int] = []
        self.by_key: defaultdict[str, list[int]] = defaultdict(list)
        self.running: list[str] = []
        self.most = self.overlaps = 0

    def begin(self, message: JetStreamMessage) -> None:
        with self.lock:
            self.begun.append(sequence(message))
            self.by_key[message.subject].append(sequence(message))
            self.overlaps += message.subject in self.running
            self.running.append(message.subject)
            self.most = max(self.most, len(self.running))

    def end(self, message: JetStreamMessage) -> None:
        message.ack()
        with self.lock:
            self.running.remove(message.subject)
            self.handled.append(sequence(message))

    def plain(self, message: JetStreamMessage) -> None:
        self.begin(message)
        if self.gate is not None:
            self.gate.wait(10)
        block(self.seconds)
        self.end(message)

    async def coroutine(self, message: JetStreamMessage) -> None:
        self.begin(message)
        try:
            if self.gate is not None:
                await until(self.gate.is_set)
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.running.remove(message.subject)
            raise
        self.end(message)

    def of(self, kind: str) -> Callable[[JetStreamMessage], object]:
        return self.plain if kind == "plain" else self.coroutine


def sequence(message: JetStreamMessage) -> int:
    return message.metadata.stream_seq


def subject(message: JetStreamMessage) -> str:
    return message.subject


async def fill(js: JetStream, stream: Stream, count: int, keys: int = 5) -> None:
    async with js.publisher() as publisher:
        for number in range(count):
            await publisher.send(f"{stream.name}.{number % keys}", b"x")


async def rest_of(consumer: Consumer, count: int) -> list[int]:
    """What the next worker gets at once; more would be too many."""
    rest: list[int] = []
    while len(rest) < count and (batch := await consumer.fetch(count + 5, max_wait=2)):
        rest += map(sequence, batch)
        batch.ack()
    rest += map(sequence, await consumer.fetch(5, no_wait=True))
    return sorted(rest)


@pytest.fixture(autouse=True)
async def _threads_end(no_leaks: None) -> AsyncIterator[None]:
    """A thread that has nothing to do any more ends a moment later."""
    yield
    await until(lambda: not any(t.name.startswith("consume ") for t in threading.enumerate()))


@pytest.fixture
async def worker(reference_server: peers.ServerProcess) -> AsyncIterator[Connection]:
    """The connection of somebody who goes."""
    async with connect(reference_server.url, close_timeout=2) as connection:
        yield connection


@pytest.mark.parametrize("kind", KINDS)
async def test_several_run_at_once_and_never_two_of_one_key(
    js: JetStream, stream: Stream, kind: str, ack_pending: Pending
) -> None:
    await fill(js, stream, 100)
    consumer = await stream.create_consumer(durable_name="c")
    handler = Handler(0.002)
    async with consumer.consume(handler.of(kind), concurrency=4, order_by=subject):
        await until(lambda: len(handler.handled) == 100)
    assert handler.most == 4 and handler.overlaps == 0
    assert all(each == sorted(each) for each in handler.by_key.values())
    assert sorted(handler.handled) == list(range(1, 101))
    await ack_pending(consumer, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_key_all_may_run_at_once(
    js: JetStream, stream: Stream, kind: str, ack_pending: Pending
) -> None:
    await fill(js, stream, 60, keys=1)
    consumer = await stream.create_consumer(durable_name="c")
    gate = threading.Event()
    handler = Handler(0, gate)
    async with consumer.consume(handler.of(kind), concurrency=8) as consumption:
        await until(lambda: len(handler.begun) == 8)
        gate.set()
        await until(lambda: len(handler.handled) == 60)
        assert consumption.state == "running"
    await ack_pending(consumer, 0)


async def test_a_slow_message_holds_up_its_own_key_alone(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    for key in ("slow", "slow", *"abcdefgh", "slow"):
        await js.publish(f"{stream.name}.{key}", b"x")
    gate, handled = asyncio.Event(), list[str]()

    async def handle(message: JetStreamMessage) -> None:
        if message.subject.endswith("slow"):
            await gate.wait()
        handled.append(message.subject.rpartition(".")[2])
        message.ack()

    async with consumer.consume(handle, concurrency=2, order_by=subject, max_messages=20):
        await until(lambda: len(handled) == 8)
        assert "slow" not in handled
        gate.set()
        await until(lambda: handled[8:] == ["slow"] * 3)


async def test_a_plain_function_that_blocks_stops_nothing_else(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 4)
    consumer = await stream.create_consumer(durable_name="c")
    gate = threading.Event()
    handler = Handler(0, gate)
    async with consumer.consume(handler.plain, concurrency=1):
        await until(lambda: handler.begun)
        async with asyncio.timeout(1):
            await js.publish(f"{stream.name}.9", b"x")
        assert len(handler.begun) == 1, "one at a time, on a thread of its own"
        gate.set()
        await until(lambda: len(handler.handled) == 5)
    assert handler.begun == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", [*KINDS, "lambda"])
async def test_what_a_callback_raises_is_told_with_its_message_and_ends_nothing(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream, kind: str
) -> None:
    await fill(js, stream, 20)
    await stream.create_consumer(durable_name="c")
    events, handler = list[Event](), Handler(0)

    def plain(message: JetStreamMessage) -> None:
        handler.plain(message)
        if sequence(message) == 7:
            raise KeyError("seven")

    async def coroutine(message: JetStreamMessage) -> None:
        plain(message)

    call = {"plain": plain, "coroutine": coroutine, "lambda": lambda m: coroutine(m)}[kind]
    async with connect(reference_server.url, on_event=events.append) as connection:
        theirs = await connection.jetstream().consumer(stream.name, "c")
        async with theirs.consume(call, concurrency=3):
            await until(lambda: len(handler.handled) == 20)
            await until(lambda: any(isinstance(event, ErrorEvent) for event in events))
    (error,) = (event for event in events if isinstance(event, ErrorEvent))
    assert isinstance(error.error, KeyError)
    assert "sequence 7, delivery 1" in error.about and stream.name in error.about


@pytest.mark.parametrize("order_by", [lambda m: m.headers["Customer"], lambda m: [m.subject]])
async def test_a_message_without_a_key_is_not_handled_and_told(
    reference_server: peers.ServerProcess,
    js: JetStream,
    stream: Stream,
    order_by: Callable[[JetStreamMessage], object],
) -> None:
    await fill(js, stream, 3)
    await stream.create_consumer(durable_name="c")
    errors, handler = list[Exception](), Handler(0)
    theirs = await js.consumer(stream.name, "c")
    async with theirs.consume(
        handler.plain, concurrency=2, order_by=order_by, on_error=errors.append
    ):
        await until(lambda: len(errors) == 3)
    assert handler.begun == []
    assert (await theirs.info()).num_ack_pending == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ordered", [True, False])
async def test_close_waits_for_those_in_hand_and_gives_back_the_rest_at_once(
    worker: Connection, js: JetStream, stream: Stream, kind: str, ordered: bool
) -> None:
    await fill(js, stream, 60, keys=7)
    consumer = await stream.create_consumer(durable_name="c")
    handler = Handler(0.02)
    theirs = await worker.jetstream().consumer(stream.name, "c")
    consumption = theirs.consume(
        handler.of(kind), concurrency=3, order_by=subject if ordered else None, max_messages=40
    )
    await until(lambda: len(handler.handled) >= 5)
    await worker.close()
    assert sorted(handler.begun) == sorted(handler.handled)
    at_close = len(handler.begun)
    with pytest.raises(ConnectionClosedError):
        await consumption.wait()
    rest = await rest_of(consumer, 60 - at_close)
    assert len(handler.begun) == at_close
    assert sorted(handler.handled + rest) == list(range(1, 61)), "none lost, none twice"


async def test_callbacks_that_run_on_are_cancelled_in_time_and_their_messages_go_back(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 5)
    consumer = await stream.create_consumer(durable_name="c")
    handler, events = Handler(0, threading.Event()), list[Event]()
    async with connect(
        reference_server.url, close_timeout=0.05, on_event=events.append
    ) as connection:
        theirs = await connection.jetstream().consumer(stream.name, "c")
        theirs.consume(handler.coroutine, concurrency=3)
        await until(lambda: len(handler.begun) == 3)
    assert await rest_of(consumer, 5) == [1, 2, 3, 4, 5]
    (error,) = (str(event.error) for event in events if isinstance(event, ErrorEvent))
    assert "3 messages were still being handled" in error


@pytest.mark.parametrize("kind", KINDS)
async def test_stop_waits_for_those_in_hand_and_gives_back_the_rest(
    js: JetStream, stream: Stream, kind: str
) -> None:
    await fill(js, stream, 30)
    consumer = await stream.create_consumer(durable_name="c")
    handler = Handler(0.03)
    async with consumer.consume(handler.of(kind), concurrency=4, max_messages=30) as consumption:
        await until(lambda: len(handler.begun) >= 4)
    assert sorted(handler.begun) == sorted(handler.handled) and consumption.state == "ended"
    rest = await rest_of(consumer, 30 - len(handler.handled))
    assert sorted(handler.handled + rest) == list(range(1, 31))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("whole", [True, False])
async def test_drain_handles_what_was_sent_ahead(
    worker: Connection, js: JetStream, stream: Stream, kind: str, whole: bool
) -> None:
    await fill(js, stream, 50)
    consumer = await stream.create_consumer(durable_name="c")
    handler = Handler(0.005)
    theirs = await worker.jetstream().consumer(stream.name, "c")
    consumption = theirs.consume(handler.of(kind), concurrency=3, order_by=subject, max_messages=20)
    await until(lambda: handler.handled)
    await (worker.drain() if whole else consumption.drain())
    done = len(handler.handled)
    assert 20 <= done == len(handler.begun) and consumption.state == "ended"
    rest = await rest_of(consumer, 50 - done)
    assert sorted(handler.handled + rest) == list(range(1, 51))
    assert handler.overlaps == 0


@pytest.mark.parametrize("how", ["stop", "drain", "close"])
async def test_callbacks_may_all_ask_for_the_end_at_once(
    worker: Connection, js: JetStream, stream: Stream, how: str
) -> None:
    await fill(js, stream, 20)
    consumer = await stream.create_consumer(durable_name="c")
    theirs, handled = await worker.jetstream().consumer(stream.name, "c"), list[int]()
    all_there = asyncio.Barrier(3)

    async def handle(message: JetStreamMessage) -> None:
        message.ack()
        handled.append(sequence(message))
        if len(handled) <= 3:
            await all_there.wait()
        if how == "close":
            await worker.close()
        else:
            await getattr(consumption, how)()

    consumption = theirs.consume(handle, concurrency=3, max_messages=20)
    async with asyncio.timeout(1.5):
        if how == "close":
            with pytest.raises(ConnectionClosedError):
                await consumption.wait()
        else:
            await consumption.wait()
    assert sorted(handled + await rest_of(consumer, 20 - len(handled))) == list(range(1, 21))


async def test_who_waits_in_its_own_callback_is_told(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    errors: list[Exception] = []

    async def handle(message: JetStreamMessage) -> None:
        message.ack()
        await consumption.wait()

    async with consumer.consume(handle, concurrency=2, on_error=errors.append) as consumption:
        await until(lambda: errors)
    assert isinstance(errors[0], ConfigurationError)


async def test_what_cannot_be_had_is_refused(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    handle = Handler().plain
    for concurrency in (0, -1, 1_001, 1.5, True, "many"):
        with pytest.raises(ConfigurationError, match="accepted: 1 to 1000"):
            consumer.consume(handle, concurrency=concurrency)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="for a callback"):
        consumer.consume(concurrency=2)
    with pytest.raises(ConfigurationError, match="goes with concurrency"):
        consumer.consume(handle, order_by=subject)
    with pytest.raises(ConfigurationError, match="function of a message"):
        consumer.consume(handle, concurrency=2, order_by="subject")  # type: ignore[arg-type]
    assert not js.connection._session.observers
