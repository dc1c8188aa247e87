"""The ordered consumer: everything once and in order, whatever happens."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

import peers
from headrace.client import JetStream, Stream, connect
from headrace.errors import JetStreamApiError, RequestTimeoutError

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def fill(js: JetStream, stream: Stream, count: int, first: int = 0) -> None:
    async with js.publisher() as publisher:
        await publisher.send_many(
            (f"{stream.name}.{n % 2}", b"%d" % n) for n in range(first, first + count)
        )


async def test_it_reads_in_order_without_acks(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3_000)
    ordered = await stream.ordered_consumer()
    seen = []
    async with ordered.consume() as messages:
        async for message in messages:
            seen.append(int(message.payload))
            if len(seen) == 3_000:
                break
    assert seen == list(range(3_000))
    assert (ordered.last_sequence, ordered.resets) == (3_000, 0)
    assert [name async for name in stream.consumer_names()] == []


async def test_filters_and_start_are_kept(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    ordered = await stream.ordered_consumer(
        filter_subject=f"{stream.name}.1", deliver_policy="by_start_sequence", opt_start_seq=5
    )
    batch = await ordered.fetch(10, max_wait=0.2)
    assert [int(p) for p in batch.payloads] == [5, 7, 9]
    with pytest.raises(RequestTimeoutError, match="after 10"):
        await ordered.next(0.1)
    await ordered.delete()


async def test_every_way_to_fetch(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    ordered = await stream.ordered_consumer()
    assert len(await ordered.fetch(4, no_wait=True)) == 4
    some = await ordered.fetch_bytes(300, max_wait=1, eager=True)
    assert 0 < len(some) < 6
    rest = await ordered.fetch(100, eager=True, heartbeat=0.5)
    assert rest.last_sequence == 10
    assert len(await ordered.fetch(5, no_wait=True)) == 0
    await ordered.delete()


async def test_a_deleted_consumer_is_replaced(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 100)
    ordered = await stream.ordered_consumer()
    assert len(await ordered.fetch(10)) == 10
    await stream.delete_consumer((await ordered.info()).name)
    assert [int(p) for p in (await ordered.fetch(5)).payloads] == [10, 11, 12, 13, 14]
    async with ordered.consume(max_messages=10, on_error=lambda error: None) as messages:
        seen = []
        async for message in messages:
            seen.append(int(message.payload))
            if len(seen) == 20:
                await stream.delete_consumer((await ordered.info()).name)
            if len(seen) == 85:
                break
    assert seen == list(range(15, 100))
    assert ordered.resets >= 2


async def test_a_missing_stream_is_an_error(js: JetStream) -> None:
    stream = await js.create_stream(name="GONE", subjects=["gone"], storage="memory")
    ordered = await stream.ordered_consumer()
    await stream.delete()
    with pytest.raises(JetStreamApiError, match="stream not found"):
        await ordered.fetch(1)


async def test_nothing_is_missed_or_repeated_over_killed_servers(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    source = random.Random(5)
    server = nats_server(sync="always")
    async with connect(server.url, reconnect_wait=0.01, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["S.>"])
        await fill(js, stream, 5_000)
        ordered = await stream.ordered_consumer()
        seen: list[int] = []
        restarts = 0
        async with ordered.consume(max_messages=50, on_error=lambda error: None) as messages:
            async for message in messages:
                seen.append(int(message.payload))
                if len(seen) == 5_000:
                    break
                if len(seen) % 1_000 == 0 and restarts < 2:
                    restarts += 1
                    server.kill()
                    server.start_again()
                    await asyncio.sleep(source.uniform(0, 0.05))
        assert seen == list(range(5_000))
        assert ordered.resets >= 1
