"""What a server delivers again after a restart though it is still held here, or in somebody's hands."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peers
from headrace import sync
from headrace.client import Connection, Consumer, JetStreamMessage, connect
from headrace.client.jetstream.calls import Api
from headrace.client.jetstream.consuming.redelivered import Held
from headrace.errors import DisconnectedError, HeadraceError
from headrace.handling.waiting import Waiting
from headrace.wire.frames import MSG, Frame
from listening import Listening
from waiting import until, until_here

COUNT = 12
PULL = re.compile(rb'"batch":(\d+)')


class ForgetfulServer:
    """Knows after a kill what was acknowledged, and nothing of what it had delivered; as a killed server may.

    Acknowledgements of what it has not delivered in this life are void, and have no answer.

    Attributes:
        confirmed: the messages that are acknowledged.
    """

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.confirmed: set[int] = set()
        self.life = 1
        self._next = 1
        self._subjects: dict[bytes, bytes] = {}
        self._links: set[asyncio.StreamWriter] = set()

    def kill(self) -> None:
        """All links are cut, and another life begins."""
        self.life += 1
        self._next = min({*range(1, self.count + 2)} - self.confirmed)
        for link in self._links:
            link.transport.abort()
        self._links.clear()
        self._subjects.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        life = self.life
        self._links.add(writer)
        writer.write(b'INFO {"server_id":"S%d","headers":true,"max_payload":1000}\r\n' % life)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while (line := await reader.readline()) and life == self.life:
                words = line.split()
                if words[0] == b"PING":
                    writer.write(b"PONG\r\n")
                elif words[0] == b"SUB":
                    self._subjects[words[-1]] = words[1].removesuffix(b"*")
                elif words[0] == b"PUB":
                    body = await reader.readexactly(int(words[-1]) + 2)
                    self._published(writer, words[1], words[2], body)
        self._links.discard(writer)

    def _published(
        self, writer: asyncio.StreamWriter, subject: bytes, reply: bytes, body: bytes
    ) -> None:
        if subject.startswith(b"$JS.API.CONSUMER.MSG.NEXT") and (found := PULL.search(body)):
            wanted = int(found[1])
            while wanted and self._next <= self.count:
                if self._next not in self.confirmed:
                    ack = b"$JS.ACK.S.c.1.%d.%d.%d.0" % (self._next, self._next, 7 * self._next)
                    self._send(writer, reply, ack, b"%d" % self._next)
                    wanted -= 1
                self._next += 1
        elif subject.startswith(b"$JS.ACK") and body in (b"\r\n", b"+ACK\r\n"):
            number = int(subject.split(b".")[5])
            if number < self._next:
                self.confirmed.add(number)
                if reply.startswith(b"_INBOX"):
                    self._send(writer, reply, b"", b"")

    def _send(self, writer: asyncio.StreamWriter, to: bytes, reply: bytes, body: bytes) -> None:
        (sid,) = [sid for sid, subject in self._subjects.items() if to.startswith(subject)]
        words = b" ".join(filter(None, (b"MSG", to, sid, reply, b"%d" % len(body))))
        writer.write(words + b"\r\n" + body + b"\r\n")


@contextlib.asynccontextmanager
async def forgetful() -> AsyncIterator[tuple[ForgetfulServer, str]]:
    scripted = ForgetfulServer()
    async with Listening(scripted.serve) as server:
        yield scripted, server.url


class Handler:
    """Acknowledges, notes what it was called with, and kills the server where it is told to.

    Args:
        kills: after so many calls; True: before it acknowledges.
    """

    def __init__(self, server: ForgetfulServer, kills: dict[int, bool]) -> None:
        self.server = server
        self.kills = kills
        self.calls = 0
        self.seen: set[int] = set()
        self.confirmed: set[int] = set()
        self.wrong: list[int] = []

    async def __call__(self, message: JetStreamMessage) -> None:
        number = int(message.payload)
        if number in self.confirmed:
            self.wrong.append(number)
        self.seen.add(number)
        self.calls += 1
        kill = self.kills.get(self.calls)
        if kill:
            self.server.kill()
            # Wherever it is in coming back: acknowledged before, or after it delivered it again.
            await asyncio.sleep(0)
        with contextlib.suppress(HeadraceError):
            await message.ack_sync(timeout=0.1)
            self.confirmed.add(number)
        if kill is False:
            self.server.kill()


async def by_iterating(consumer: Consumer, handler: Handler) -> None:
    async with consumer.consume(on_error=lambda error: None) as messages:
        async for message in messages:
            await handler(message)


async def by_batches(consumer: Consumer, handler: Handler) -> None:
    async with consumer.consume(on_error=lambda error: None) as messages:
        async for batch in messages.batches(2):
            for message in batch:
                await handler(message)


async def by_callback(consumer: Consumer, handler: Handler) -> None:
    await consumer.consume(handler, on_error=lambda error: None).wait()


async def by_callbacks(consumer: Consumer, handler: Handler) -> None:
    await consumer.consume(handler, on_error=lambda error: None, concurrency=3).wait()


async def by_key(consumer: Consumer, handler: Handler) -> None:
    consumption = consumer.consume(
        handler,
        on_error=lambda error: None,
        concurrency=3,
        order_by=lambda message: int(message.payload) % 2,
    )
    await consumption.wait()


WAYS = [by_iterating, by_batches, by_callback, by_callbacks, by_key]
Way = Callable[[Consumer, Handler], Awaitable[None]]


async def _read(way: Way, kills: dict[int, bool]) -> Handler:
    async with (
        forgetful() as (server, url),
        connect(url, reconnect_wait=0.001, reconnect_wait_max=0.002) as connection,
    ):
        handler = Handler(server, kills)
        consumer = Consumer(Api(connection._session), "S", "c")
        reading = asyncio.ensure_future(way(consumer, handler))
        await until(lambda: len(server.confirmed) == COUNT or reading.done(), within=60)
        await _flushed(connection)
        reading.cancel()
        await asyncio.wait([reading])
        assert len(handler.seen) == COUNT
        assert server.confirmed == handler.seen
        return handler


async def _flushed(connection: Connection) -> None:
    """The server may go once more, with what it has confirmed last."""
    while True:
        try:
            return await connection.flush()
        except DisconnectedError:
            await until(lambda: connection.is_connected)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=12, deadline=None)
@given(kills=st.dictionaries(st.integers(1, COUNT), st.booleans(), min_size=1, max_size=3))
def test_what_is_confirmed_is_not_handled_again_and_nothing_is_lost_however_often_the_server_forgets(
    way: Way, kills: dict[int, bool]
) -> None:
    assert asyncio.run(_read(way, kills)).wrong == []


async def test_what_waits_is_handled_once_by_the_newer_delivery() -> None:
    async with (
        forgetful() as (server, url),
        connect(url, reconnect_wait=0.001, reconnect_wait_max=0.002) as connection,
    ):
        consumer = Consumer(Api(connection._session), "S", "c")
        async with consumer.consume(on_error=lambda error: None) as messages:
            first = await anext(messages)
            await until(lambda: messages.buffered == COUNT - 1)
            server.kill()
            # That which is in hand comes again, and the others are in the places of the older ones.
            await until(lambda: messages.buffered == COUNT)
            taken = [await anext(messages) for _ in range(COUNT)]
            assert [int(message.payload) for message in taken] == [*range(2, COUNT + 1), 1]
            assert first.is_of_former_server
            assert not any(message.is_of_former_server for message in taken)


async def test_what_is_in_hand_is_not_handled_again_once_it_is_confirmed() -> None:
    async with (
        forgetful() as (server, url),
        connect(url, reconnect_wait=0.001, reconnect_wait_max=0.002) as connection,
    ):
        consumer = Consumer(Api(connection._session), "S", "c")
        async with consumer.consume(on_error=lambda error: None) as messages:
            first = await anext(messages)
            server.kill()
            await until(lambda: messages.buffered == COUNT)
            await first.ack_sync()
            assert messages.buffered == COUNT - 1
            taken = [await anext(messages) for _ in range(COUNT - 1)]
            assert [int(message.payload) for message in taken] == [*range(2, COUNT + 1)]


# What is held, without a server


def delivery(number: int, sid: int, *, at: int = 0) -> Frame:
    """A message of a stream as it came on a subscription, stored at a time."""
    ack = b"$JS.ACK.S.c.1.%d.%d.%d.0" % (number, number, at)
    return (MSG, b"s", b"%d" % sid, ack, b"", b"%d" % number)


def held(frames: list[Frame]) -> tuple[deque[Frame], Held, list[Frame]]:
    forgotten: list[Frame] = []
    buffer = deque(frames)
    return buffer, Held(buffer, deque(), forgotten.extend), forgotten


def test_a_message_of_a_stream_that_was_made_again_is_another_one() -> None:
    buffer, made, forgotten = held([delivery(1, 3, at=5), delivery(2, 3, at=6)])
    made.linked(4)
    newer = [delivery(1, 4, at=7), delivery(2, 4, at=8)]
    assert made.renew(newer) == newer
    assert [*buffer] == [delivery(1, 3, at=5), delivery(2, 3, at=6)]
    assert not forgotten


def test_a_link_that_is_lost_alone_makes_nothing_void() -> None:
    _, made, _ = held([delivery(1, 3)])
    made.linked(1)
    assert not made.is_mixed


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("come"), st.integers(1, 4)),
        st.tuples(st.just("confirm"), st.integers(1, 8)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_each_message_is_held_once_and_by_its_newest_delivery(steps: list[Step]) -> None:
    """What was taken comes again; what is confirmed then does not stay."""
    buffer, made, forgotten = held([])
    life, at, arrived, taken = 1, 0, 0, 0
    in_hand: set[int] = set()
    for step, value in steps:
        if step == "restart":
            life, at = life + 1, 0
            made.linked(life)
        elif step == "take":
            for _ in range(min(value, len(buffer))):
                in_hand.add(int(buffer.popleft()[5]))
                taken += 1
        elif step == "come":
            came = [delivery(at + n, life) for n in range(1, value + 1) if at + n <= 8]
            at += value
            arrived += len(came)
            buffer.extend(made.renew(came) if made.is_mixed else came)
        elif value in in_hand:
            made.remove(delivery(value, life))
            assert all(int(frame[5]) != value for frame in buffer)
        numbers = [int(frame[5]) for frame in buffer]
        assert len({*numbers}) == len(numbers)
        assert all(int(frame[2]) == life or int(frame[5]) > at for frame in buffer)
        assert arrived == taken + len(buffer) + len(forgotten)


def test_what_is_on_the_shelf_or_lent_is_renewed_in_its_place() -> None:
    forgotten: list[Frame] = []
    waiting = [JetStreamMessage(None, delivery(n, 3)) for n in (1, 2)]  # type: ignore[arg-type]
    lent = deque(JetStreamMessage(None, delivery(n, 3)) for n in (3, 4))  # type: ignore[arg-type]
    frames: deque[Frame] = deque()
    made = Held(frames, lent, forgotten.extend)
    made.by_key = Waiting()
    made.by_key.add((None, message) for message in waiting)
    begun = made.by_key.next()
    made.linked(4)
    assert made.is_mixed
    newer = [delivery(n, 4) for n in (1, 2, 3, 4, 5)]
    assert made.renew(newer) == [newer[0], newer[4]]
    assert begun is not None
    assert begun._frame == delivery(1, 3)
    assert [m._frame for m in (*made.by_key.waiting(), *lent)] == newer[1:4]
    assert forgotten == [delivery(n, 3) for n in (2, 3, 4)]
    assert not made.is_mixed


# Threads


def test_a_thread_has_what_waits_once_too() -> None:
    async def serve(
        began: asyncio.Future[tuple[ForgetfulServer, str]], over: asyncio.Event
    ) -> None:
        async with forgetful() as made:
            began.set_result(made)
            await over.wait()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        began: asyncio.Future[tuple[ForgetfulServer, str]] = loop.create_future()
        over = asyncio.Event()
        serving = asyncio.create_task(serve(began, over))
        server, url = await began

        def read() -> list[int]:
            handled: list[int] = []
            with sync.connect(url, reconnect_wait=0.001, reconnect_wait_max=0.002) as connection:
                consumer = sync.Consumer(
                    connection._thread, Consumer(Api(connection._inner._session), "S", "c")
                )
                with consumer.consume(on_error=lambda error: None) as messages:
                    for message in messages:
                        handled.append(int(message.payload))
                        if len(handled) == 1:
                            loop.call_soon_threadsafe(server.kill)
                            until_here(lambda: messages.buffered == COUNT)
                        message.ack_sync()
                        if len(server.confirmed) == COUNT:
                            return handled
            raise AssertionError("it ended")

        assert await asyncio.to_thread(read) == [*range(1, COUNT + 1)]
        over.set()
        await serving

    asyncio.run(run())


# The servers


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[peers.ServerProcess]:
    yield from peers.either_running(request.param, tmp_path, durable=True)


@pytest.mark.parametrize("concurrency", [None, 3])
async def test_nothing_is_lost_or_handled_after_its_confirmation_beside_a_kill(
    server: peers.ServerProcess, concurrency: int | None
) -> None:
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.*"])
        for number in range(COUNT):
            await js.publish(f"s.{number}", b"%d" % number)
        consumer = await stream.create_consumer(durable_name="c", ack_wait=30.0)
        confirmed: set[int] = set()
        wrong: list[int] = []
        gate = asyncio.Event()

        async def handle(message: JetStreamMessage) -> None:
            number = int(message.payload)
            if number in confirmed:
                wrong.append(number)
            await gate.wait()
            with contextlib.suppress(HeadraceError):
                await message.ack_sync()
                confirmed.add(number)

        consumption = consumer.consume(
            handle, max_messages=50, concurrency=concurrency, on_error=lambda error: None
        )
        async with consumption:
            await until(lambda: consumption.buffered == COUNT - (concurrency or 1))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start_again)
            await until(lambda: connection.reconnects and connection.is_connected, within=30)
            gate.set()
            await until(lambda: len(confirmed) == COUNT, within=90)
            await connection.flush()
        assert wrong == []
        info = await consumer.info()
        assert info.num_pending == info.num_ack_pending == 0
