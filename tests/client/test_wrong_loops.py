"""A connection that is used in another event loop than its own says so, whatever is called."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, NamedTuple

import pytest

import guides
import peers
from headrace import WrongLoopError
from headrace.client import Connection, Consumer, JetStream, JetStreamMessage, connect

pytestmark = pytest.mark.peer


class Made(NamedTuple):
    """What was made in one loop, and is used in another."""

    connection: Connection
    js: JetStream
    consumer: Consumer
    message: JetStreamMessage
    sequence: int  # of the newest message


async def made(url: str) -> Made:
    connection = await connect(url)
    js = connection.jetstream()
    stream = await js.create_or_update_stream(
        name="LOOPS", subjects=["loops.*"], storage="memory", allow_atomic=True
    )
    ack = await js.publish("loops.a", b"x")
    consumer = await stream.create_consumer(deliver_policy="all")
    return Made(connection, js, consumer, await consumer.next(30), ack.seq)


async def iterate(made: Made) -> None:
    async for _ in made.consumer.consume():
        pass


async def publish_many(made: Made) -> None:
    async with made.js.publisher() as publisher:
        await publisher.send("loops.a", b"x")


async def publish_together(made: Made) -> None:
    async with made.js.batch() as batch:
        batch.add("loops.a", b"1")
        batch.add("loops.a", b"2")


CALLS: dict[str, Callable[[Made], Awaitable[Any]]] = {
    "publish": lambda made: made.connection.publish("loops.a", b"x"),
    "request": lambda made: made.connection.request("loops.b", b"x"),
    "subscribe": lambda made: made.connection.subscribe("loops.a"),
    "flush": lambda made: made.connection.flush(),
    "drain": lambda made: made.connection.drain(),
    "close": lambda made: made.connection.close(),
    "js.publish": lambda made: made.js.publish("loops.a", b"x"),
    "publisher": publish_many,
    "batch": publish_together,
    "stream": lambda made: made.js.stream("LOOPS"),
    "key_value": lambda made: made.js.create_key_value("LOOPS"),
    "fetch": lambda made: made.consumer.fetch(1, max_wait=1),
    "next": lambda made: made.consumer.next(1),
    "consume": iterate,
    "ack_sync": lambda made: made.message.ack_sync(),
}


def refusal_of(call: Callable[[Made], Awaitable[Any]], of: Made) -> str:
    """What it says in a loop of its own."""

    async def called() -> None:
        async with asyncio.timeout(60):
            await call(of)

    with pytest.raises(WrongLoopError) as refused:
        asyncio.run(called())
    return str(refused.value)


def test_each_call_says_that_the_loop_of_its_connection_is_closed(
    reference_server: peers.ServerProcess,
) -> None:
    of = asyncio.run(made(reference_server.url))
    assert not of.connection.is_connected
    assert "event loop" in of.connection.health().reason
    for name, call in CALLS.items():
        text = refusal_of(call, of)
        assert "the event loop that this connection was made in is closed" in text, name
        assert "use headrace.sync" in text, name
    with pytest.raises(WrongLoopError):  # and without any loop
        of.connection.publish_nowait("loops.a", b"x")
    assert of.connection.unsent_bytes == 0
    with warnings.catch_warnings():  # nobody can close the socket of a loop that is closed
        warnings.simplefilter("ignore", ResourceWarning)
        del of
        gc.collect()


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs on another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_each_call_says_that_another_loop_has_the_connection_which_goes_on(
    reference_server: peers.ServerProcess, elsewhere: asyncio.AbstractEventLoop
) -> None:
    of = asyncio.run_coroutine_threadsafe(made(reference_server.url), elsewhere).result(60)
    for name, call in CALLS.items():
        text = refusal_of(call, of)
        assert "made in another event loop than the one that runs here" in text, name

    async def used() -> int:
        sequence = (await of.js.publish("loops.a", b"y")).seq
        await of.message.ack_sync()
        await of.connection.close()
        return sequence

    stored_as = asyncio.run_coroutine_threadsafe(used(), elsewhere).result(60)
    assert stored_as == of.sequence + 1  # nothing else was sent


def stepped(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run it as trio and curio do: step by step, without a loop of asyncio."""
    coroutine.send(None)


def test_where_no_loop_of_asyncio_runs_connecting_says_that_the_client_is_asyncio_s() -> None:
    async def awaits() -> None:
        await connect("nats://127.0.0.1:4222")

    async def enters() -> None:
        async with connect("nats://127.0.0.1:4222"):
            raise AssertionError("it is connected")

    for program in (awaits, enters):
        with pytest.raises(WrongLoopError, match=r"asyncio's.*trio and curio.*headrace\.sync"):
            stepped(program())


def test_the_page_of_the_client_says_with_what_it_does_not_run() -> None:
    page = " ".join((guides.ROOT / "docs" / "client.md").read_text().split())
    assert "The client is asyncio's; with trio or curio it does not run" in page
