"""Fetching, and the answers to messages, against the reference server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

import chaos
import peers
from headrace.broker.server import Broker
from headrace.client import Batch, Connection, Consumer, JetStream, Stream, connect
from headrace.client.jetstream.fetch import Fetch
from headrace.errors import (
    ConfigurationError,
    ConnectionClosedError,
    JetStreamApiError,
    NoRespondersError,
    PullError,
    RequestTimeoutError,
)
from waiting import elapse, until, until_delivered, until_pulling

AckPending = Callable[[Consumer, int], Awaitable[None]]

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def fill(js: JetStream, stream: Stream, count: int, size: int = 10) -> None:
    async with js.publisher() as publisher:
        await publisher.send_many((f"{stream.name}.a", b"x" * size) for _ in range(count))


def sequences(batch: Batch) -> list[int]:
    return [message.metadata.stream_seq for message in batch]


async def test_a_fetch_brings_what_was_asked_for_in_order(
    js: JetStream, stream: Stream, ack_pending: AckPending
) -> None:
    await fill(js, stream, 2_500)
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=5_000)
    batch = await consumer.fetch(1_000)
    assert sequences(batch) == list(range(1, 1_001))
    assert batch.last_sequence == 1_000
    assert batch.payloads[0] == b"x" * 10
    assert batch.status is None
    await batch.ack()
    await ack_pending(consumer, 0)
    assert (await consumer.info()).num_pending == 1_500
    assert sequences(await consumer.fetch(1_000, no_wait=True)) == list(range(1_001, 2_001))
    rest = await consumer.fetch(1_000)
    assert len(rest) == 500
    assert rest.status is not None
    assert rest.status.code == 404


async def test_nothing_there_is_an_empty_batch(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    assert not await consumer.fetch(10, no_wait=True)
    started = time.monotonic()
    batch = await consumer.fetch(10, max_wait=0.2)
    assert len(batch) == 0
    assert time.monotonic() - started > 0.15
    with pytest.raises(RequestTimeoutError, match="'c'"):
        await consumer.next(0.1)


async def test_a_fetch_does_not_wait_for_more_than_is_there(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    batch = await asyncio.wait_for(consumer.fetch(10, max_wait=60), 5)
    assert (len(batch), batch.status is not None and batch.status.code) == (3, 404)
    ordered = await stream.ordered_consumer()
    assert len(await asyncio.wait_for(ordered.fetch(10, max_wait=60), 5)) == 3


async def test_a_fetch_does_not_wait_for_more_than_may_be_unacknowledged(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 5)
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=3)
    batch = await asyncio.wait_for(consumer.fetch(10, max_wait=60), 5)
    assert sequences(batch) == [1, 2, 3]
    await batch.ack()
    assert sequences(await asyncio.wait_for(consumer.fetch(10, max_wait=60), 5)) == [4, 5]


async def test_a_fetch_waits_for_the_first_message(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    fetching = asyncio.create_task(consumer.fetch(10, max_wait=60))
    await until_pulling(consumer)
    await js.publish(f"{stream.name}.a")
    assert len(await asyncio.wait_for(fetching, 5)) == 1


async def test_a_fetch_that_is_not_eager_waits_for_all(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    fetching = asyncio.create_task(consumer.fetch(3, max_wait=60, eager=False))
    await until_delivered(consumer, 1)
    await fill(js, stream, 2)
    assert len(await asyncio.wait_for(fetching, 5)) == 3


async def test_a_fetch_behind_others_waits_in_its_turn(
    connection: Connection, js: JetStream, stream: Stream
) -> None:
    """A server refuses a pull that would not wait while others wait for more than there is."""
    await fill(js, stream, 10)
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=5)
    held = await consumer.fetch(5)
    first = asyncio.create_task(consumer.fetch(10, max_wait=60, eager=False))
    await until_pulling(consumer)
    pulls = connection.stats().pulls
    second = asyncio.create_task(consumer.fetch(10, max_wait=60))
    await until_pulling(consumer, 2)
    assert connection.stats().pulls == pulls + 2  # refused once, then it waited
    await held.ack()
    await until_delivered(consumer, 10)
    await consumer.delete()
    batches = [await asyncio.wait_for(task, 5) for task in (first, second)]
    assert sorted(n for batch in batches for n in sequences(batch)) == [6, 7, 8, 9, 10]
    assert all(batches)


async def test_a_fetch_of_bytes_stops_before_more(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10, size=1_000)
    consumer = await stream.create_consumer(durable_name="c")
    batch = await consumer.fetch_bytes(3_500)
    assert len(batch) == 3
    assert batch.status is not None
    assert batch.status.description == "Message Size Exceeds MaxBytes"
    tiny = await consumer.fetch_bytes(10)
    assert (len(tiny), tiny.status is not None) == (0, True)


async def test_bytes_that_fit_exactly_end_the_fetch_without_a_status(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 4, size=100)
    consumer = await stream.create_consumer(durable_name="c")
    (probe,) = await consumer.fetch(1)
    size = len(probe.subject) + len(probe.reply) + len(probe.payload)
    batch = await consumer.fetch_bytes(2 * size, max_wait=300)  # longer than a test may take
    assert len(batch) == 2
    assert batch.status is None


async def test_a_missing_consumer_fails_at_once(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    await consumer.delete()
    with pytest.raises(NoRespondersError, match="'c' of stream"):
        await consumer.fetch(1)


async def test_a_consumer_deleted_meanwhile_ends_the_fetch(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    fetching = asyncio.create_task(consumer.fetch(10, max_wait=5))
    await until_pulling(consumer)
    await consumer.delete()
    with pytest.raises(PullError, match="Consumer Deleted"):
        await asyncio.wait_for(fetching, 2)


async def test_messages_before_an_error_are_handed_out(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    fetching = asyncio.create_task(consumer.fetch(10, max_wait=5, eager=False))
    await until_delivered(consumer, 3)
    await consumer.delete()
    batch = await asyncio.wait_for(fetching, 2)
    assert len(batch) == 3
    assert isinstance(batch.error, PullError)


async def test_a_refused_pull_is_an_error(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c", max_batch=5)
    with pytest.raises(PullError, match="Exceeded MaxRequestBatch of 5"):
        await consumer.fetch(6)


async def test_a_stalled_no_wait_ends_by_our_own_clock(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=5)
    batch = await consumer.fetch(10, no_wait=True, max_wait=0.1)
    assert len(batch) == 5


async def test_a_cancelled_fetch_sends_its_messages_back(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c", ack_wait=30)
    fetching = asyncio.create_task(consumer.fetch(10, max_wait=10, eager=False))
    await until_pulling(consumer)
    await fill(js, stream, 3)
    await until_delivered(consumer, 3)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    batch = await consumer.fetch(3, max_wait=2, eager=False)
    assert sorted(sequences(batch)) == [1, 2, 3]
    assert [message.metadata.delivered for message in batch] == [2, 2, 2]
    assert (await consumer.info()).num_waiting == 0


async def test_arguments_out_of_range_are_refused(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    with pytest.raises(ConfigurationError, match="max_messages"):
        await consumer.fetch(0)
    with pytest.raises(ConfigurationError, match="max_bytes"):
        await consumer.fetch_bytes(0)
    with pytest.raises(ConfigurationError, match="max_wait"):
        await consumer.fetch(1, max_wait=0)
    with pytest.raises(ConfigurationError, match="heartbeat"):
        await consumer.fetch(1, max_wait=1, heartbeat=0.6)
    with pytest.raises(ConfigurationError, match="no priority groups"):
        await consumer.fetch(1, group="A")


async def test_heartbeats_keep_a_long_fetch_alive(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    batch = await consumer.fetch(1, max_wait=1.4, heartbeat=0.5)
    assert len(batch) == 0
    assert batch.error is None


async def test_while_the_connection_is_away_a_fetch_does_not_look_for_heartbeats_all_the_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    look = Fetch._check_beat

    def counted(fetch: Fetch) -> None:
        nonlocal looks
        looks += 1
        look(fetch)

    monkeypatch.setattr(Fetch, "_check_beat", counted)
    async with chaos.ChaosProxy("127.0.0.1", broker.port) as proxy:
        connection = await connect(proxy.url, reconnect_wait=60, reconnect_wait_max=60)
        stream = await connection.jetstream().create_stream(name="S", subjects=["s"])
        consumer = await stream.create_consumer(durable_name="c")
        fetch = asyncio.create_task(consumer.fetch(1, max_wait=30, heartbeat=0.1))
        await until_pulling(consumer)
    began, before = time.monotonic(), looks
    await until(lambda: looks >= before + 5)
    assert time.monotonic() - began >= 4 * 0.2
    fetch.cancel()
    await asyncio.wait([fetch])
    await connection.close()


# Answers


async def one(consumer: Consumer) -> tuple[int, int]:
    message = await consumer.next(2)
    return message.metadata.stream_seq, message.metadata.delivered


async def test_nak_brings_a_message_again_and_a_delay_waits(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    await (await consumer.next()).nak()
    message = await consumer.next()
    assert message.metadata.delivered == 2
    started = time.monotonic()
    message.nak(0.3)
    assert await one(consumer) == (1, 3)
    assert time.monotonic() - started > 0.25


async def test_term_and_ack_are_final_and_only_the_first_counts(
    js: JetStream, stream: Stream, ack_pending: AckPending
) -> None:
    await fill(js, stream, 2)
    consumer = await stream.create_consumer(durable_name="c", ack_wait=0.2)
    first, second = await consumer.fetch(2)
    first.term("poison")
    first.nak()
    await second.ack()
    assert second.is_answered
    assert not await consumer.fetch(2, max_wait=0.5)
    await ack_pending(consumer, 0)


async def test_in_progress_gives_more_time(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c", ack_wait=0.4)
    message = await consumer.next()
    for _ in range(4):
        await elapse(0.2, "half of the time for an acknowledgement")
        await message.in_progress()
    await message.ack_sync()
    assert not await consumer.fetch(1, max_wait=0.3)


async def test_ack_sync_without_a_consumer_fails(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 1)
    consumer = await stream.create_consumer(durable_name="c")
    message = await consumer.next()
    await consumer.delete()
    with pytest.raises(NoRespondersError):
        await message.ack_sync(1)


async def test_ack_all_acknowledges_what_is_open(
    js: JetStream, stream: Stream, ack_pending: AckPending
) -> None:
    await fill(js, stream, 10)
    consumer = await stream.create_consumer(durable_name="c")
    batch = await consumer.fetch(10)
    batch[0].nak(10)
    await consumer.ack_all(batch[1:5])
    await ack_pending(consumer, 6)
    await batch.ack()
    await ack_pending(consumer, 1)
    await batch.nak()
    assert not await consumer.fetch(1, no_wait=True)


async def test_pause_resume_and_reset(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    consumer = await stream.create_consumer(durable_name="c")
    assert (await consumer.pause(30)).paused
    assert not await consumer.fetch(1, max_wait=0.2)
    assert not (await consumer.resume()).paused
    assert await one(consumer) == (1, 1)
    assert (await consumer.reset(3)).reset_seq == 3
    assert await one(consumer) == (3, 1)
    consumer_all = await stream.create_consumer(durable_name="last", deliver_policy="last")
    with pytest.raises(JetStreamApiError) as caught:
        await consumer_all.reset(1)
    assert caught.value.err_code == 10204


# The connection goes


async def test_a_fetch_goes_on_after_a_reconnect(
    nats_server: Callable[..., peers.ServerProcess], free_port: int
) -> None:
    server = nats_server(port=free_port)
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        consumer = await stream.create_consumer(durable_name="c")
        await js.publish("s.a", b"1")
        fetching = asyncio.create_task(consumer.fetch(2, max_wait=10, eager=False))
        await until_delivered(consumer, 1)
        await elapse(0.3, "nats-server writes down a little later that it has delivered")
        server.kill()
        await asyncio.wait_for(anext(connection.events()), 5)
        again = peers.start_nats_server(server.store_dir.parent, port=free_port)
        try:
            await connection.flush(5)
            await js.publish("s.a", b"2", retries=20)
            batch = await asyncio.wait_for(fetching, 10)
            assert batch.payloads == [b"1", b"2"]
        finally:
            again.stop()


async def test_closing_ends_a_fetch(reference_server: peers.ServerProcess) -> None:
    connection = await connect(reference_server.url)
    js = connection.jetstream()
    stream = await js.create_stream(name="CLOSING", subjects=["closing"], storage="memory")
    consumer = await stream.create_consumer(durable_name="c")
    fetching = asyncio.create_task(consumer.fetch(2, max_wait=10))
    await connection.flush()
    await connection.close()
    with pytest.raises(ConnectionClosedError):
        await fetching
    async with connect(reference_server.url) as other:
        await other.jetstream().delete_stream("CLOSING")
