"""What is too long for a line of the protocol is refused before it costs the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import peers
from headrace.client import Connection, JetStream, connect
from headrace.client.net.outbox import WORDS_BYTES_MAX, check_line, reply_bytes
from headrace.embedded import Broker
from headrace.errors import ConfigurationError, LimitExceededError

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

LONG = "x" * 5_000
TOO_LONG = (ConfigurationError, LimitExceededError)
Call = Callable[[Connection], Awaitable[object]]


async def _windowed(js: JetStream, fast: bool) -> None:
    async with js.publisher(fast=fast) as publisher:
        await publisher.send(LONG)


async def _batch(js: JetStream) -> None:
    js.batch().add(LONG)


async def _key(js: JetStream) -> None:
    bucket = await js.create_or_update_key_value("LINES", storage="memory")
    try:
        await bucket.put(LONG, b"1")
    finally:
        await js.delete_key_value("LINES")


CALLS: dict[str, Call] = {
    "publish": lambda c: c.publish(LONG),
    "publish with a reply": lambda c: c.publish("x", reply=LONG),
    "publish and reply": lambda c: c.publish("x" * 3_000, reply="x" * 3_000),
    "request": lambda c: c.request(LONG),
    "subscribe": lambda c: c.subscribe(LONG),
    "queue group": lambda c: c.subscribe("x", queue=LONG),
    "subscribe with both": lambda c: c.subscribe("x" * 3_000, queue="x" * 3_000),
    "not ASCII": lambda c: c.publish("é" * 2_500),
    "js.publish": lambda c: c.jetstream().publish(LONG),
    "windowed publisher": lambda c: _windowed(c.jetstream(), False),
    "fast publisher": lambda c: _windowed(c.jetstream(), True),
    "atomic batch": lambda c: _batch(c.jetstream()),
    "create stream": lambda c: c.jetstream().create_stream(name=LONG, subjects=["x"]),
    "stream": lambda c: c.jetstream().stream(LONG),
    "delete stream": lambda c: c.jetstream().delete_stream(LONG),
    "consumer": lambda c: c.jetstream().consumer("S", LONG),
    "consumer's stream": lambda c: c.jetstream().consumer(LONG, "c"),
    "create consumer": lambda c: c.jetstream().create_consumer("S", durable_name=LONG),
    "filter": lambda c: c.jetstream().create_consumer("S", durable_name="c", filter_subject=LONG),
    "bucket": lambda c: c.jetstream().create_key_value(LONG),
    "key": lambda c: _key(c.jetstream()),
    "object bucket": lambda c: c.jetstream().create_object_store(LONG),
    "prefix": lambda c: c.jetstream(prefix=LONG).account_info(),
    "service": lambda c: c.add_service(LONG, version="1.0.0"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_too_long_for_a_line_is_refused_and_nothing_else_suffers(
    call: str, connection: Connection
) -> None:
    async with await connection.subscribe("slow") as asked:
        asking = asyncio.ensure_future(connection.request("slow", b"under way"))
        with pytest.raises(TOO_LONG) as caught:
            await CALLS[call](connection)
        assert len(str(caught.value)) < 400
        await (await asked.next(2)).respond(b"done")
        assert (await asking).payload == b"done"
    assert connection.reconnects == 0


async def test_a_requester_with_a_long_reply_costs_who_answers_nothing(
    connection: Connection, reference_server: peers.ServerProcess
) -> None:
    async with connect(reference_server.url) as answering:
        await answering.subscribe("asked", callback=lambda m: m.respond(b"1", headers={"A": "1"}))
        await answering.flush()
        events = answering.events()
        # As long as another client may make it.
        line = b"PUB asked %b 0\r\n\r\n" % (b"r" * 4_086)
        connection._session.send(line)
        await connection.flush()
        event = await asyncio.wait_for(anext(events), 5)
        assert isinstance(getattr(event, "error", None), LimitExceededError)
        await answering.flush()
        assert answering.reconnects == 0


@pytest.mark.parametrize("size", [WORDS_BYTES_MAX, WORDS_BYTES_MAX - 1])
async def test_the_longest_lines_are_taken_by_the_servers(
    size: int, connection: Connection
) -> None:
    await connection.publish("x" * size, b"1", headers={"A": "1"})
    await (await connection.subscribe("x" * size)).unsubscribe()
    await connection.subscribe("x" * (size - 10), queue="y" * 10)
    await connection.publish("x" * 1_000, b"1" * 1_000_000, reply="y" * (size - 1_000))
    longest = "x" * (size - reply_bytes("_INBOX"))
    asking = asyncio.ensure_future(connection.request(longest, b"1" * 1_000_000, timeout=0.01))
    await asyncio.wait([asking])
    assert not isinstance(asking.exception(), LimitExceededError)
    await connection.flush()
    assert connection.reconnects == 0


async def test_an_inbox_prefix_leaves_room_for_subjects() -> None:
    with pytest.raises(ConfigurationError, match=r"inbox_prefix.*at most 512 bytes"):
        await connect("nats://127.0.0.1:1", inbox_prefix="i" * 513)
    async with Broker(port=-1) as broker:
        async with connect(broker.client_url, inbox_prefix="i" * 512) as connection:
            assert (await connection.jetstream().account_info()).streams == 0
        async with broker.connect() as near, near.jetstream().publisher() as publisher:
            with pytest.raises(LimitExceededError, match="a subject of 5000 bytes"):
                await publisher.send(LONG)


def test_the_limit_is_of_all_words_together() -> None:
    check_line(b"x" * WORDS_BYTES_MAX)
    check_line(b"x", WORDS_BYTES_MAX - 1)
    with pytest.raises(LimitExceededError, match="takes 4096 bytes"):
        check_line(b"xx", WORDS_BYTES_MAX - 1)
