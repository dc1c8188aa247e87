"""Publishing without a socket, a piece at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace.client import Connection, Stream
from headrace.embedded import Broker

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    async with Broker(port=-1) as broker, broker.connect() as connection:
        yield connection


async def new_stream(connection: Connection) -> Stream:
    return await connection.jetstream().create_stream(
        name="S", subjects=["s.>"], storage="memory", num_replicas=1
    )


async def stored(stream: Stream) -> list[tuple[str, bytes, str]]:
    consumer = await stream.create_consumer(ack_policy="none", inactive_threshold=60)
    batch = await consumer.fetch(10_000, no_wait=True)
    return [(m.subject, m.payload, m.headers.get("H") or "") for m in batch]


async def test_messages_of_any_kind_are_stored_in_their_order(connection: Connection) -> None:
    stream = await new_stream(connection)
    messages: list[Any] = []
    for number in range(2_000):
        subject, payload = f"s.{number % 7}", b"%d" % number
        if number % 300 == 299:
            messages.append((subject, payload, {"H": "v"}))
        elif number % 500 == 250:
            messages.append((subject, bytearray(payload)))
        else:
            messages.append((subject, payload))
    async with connection.jetstream().publisher(window=300) as publisher:
        assert await publisher.send_many(messages) == 2_000
        await publisher.flush()
        assert (publisher.acked, publisher.failed, publisher.in_flight) == (2_000, 0, 0)
    expected = [(m[0], bytes(m[1]), "v" if len(m) == 3 else "") for m in messages]
    assert await stored(stream) == expected


async def test_each_message_has_an_id_of_its_own_if_that_is_asked_for(
    connection: Connection,
) -> None:
    stream = await new_stream(connection)
    messages: list[Any] = [
        (f"s.{number % 1_000 // 700}", b"%d" % number) for number in range(1_500)
    ]
    messages[1_200] = (*messages[1_200], {"H": "v"})
    async with connection.jetstream().publisher(deduplicate=True) as publisher:
        await publisher.send("s.0", b"first")
        assert await publisher.send_many(messages) == 1_500
        assert await publisher.send_many(messages[:1]) == 1
        await publisher.flush()
        assert (publisher.acked, publisher.duplicates, publisher.in_flight) == (1_502, 0, 0)
        assert publisher._unacked_bytes == 0
    consumer = await stream.create_consumer(ack_policy="none", inactive_threshold=60)
    batch = await consumer.fetch(10_000, no_wait=True)
    sent = [("s.0", b"first"), *(message[:2] for message in messages), messages[0]]
    assert [(m.subject, m.payload) for m in batch] == sent
    ids = [str(m.headers.get("Nats-Msg-Id")) for m in batch]
    assert ids == [f"{ids[0].partition('.')[0]}.{number}" for number in range(1_502)]


async def test_an_error_of_the_source_is_raised_behind_what_came_before(
    connection: Connection,
) -> None:
    stream = await new_stream(connection)

    def failing() -> Iterator[tuple[str, bytes]]:
        for number in range(700):
            yield "s.a", b"%d" % number
        raise ValueError("the source is broken")

    async with connection.jetstream().publisher() as publisher:
        with pytest.raises(ValueError, match="the source is broken"):
            await publisher.send_many(failing())
        assert publisher.sent == 700
        await publisher.flush()
    assert [int(payload) for _, payload, _ in await stored(stream)] == list(range(700))


async def test_an_odd_message_among_them_is_refused_and_those_before_it_are_sent(
    connection: Connection,
) -> None:
    stream = await new_stream(connection)
    messages: list[Any] = [("s.a", b"0")] * 300 + [("s.a",)]
    async with connection.jetstream().publisher() as publisher:
        with pytest.raises((TypeError, ValueError)):
            await publisher.send_many(messages)
        await publisher.flush()
    assert len(await stored(stream)) == 300


async def test_the_window_in_bytes_holds(connection: Connection) -> None:
    await new_stream(connection)
    async with connection.jetstream().publisher(window_bytes=4_000) as publisher:
        most = 0

        def watched() -> Iterator[tuple[str, bytes]]:
            nonlocal most
            for _ in range(2_000):
                most = max(most, publisher._unacked_bytes)
                yield "s.a", b"x" * 200

        await publisher.send_many(watched())
        await publisher.flush()
        assert publisher.acked == 2_000
    assert most < 4_000 + 300  # one message beyond, at most
