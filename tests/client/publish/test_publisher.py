"""The windowed publisher: every message ends in an ack or a reported failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import peers
from headrace.client import JetStream, PublishError, PublishFailure, Stream, connect
from headrace.errors import (
    ConfigurationError,
    ConnectionClosedError,
    InvalidSubjectError,
    JetStreamApiError,
    LimitExceededError,
    NoRespondersError,
    RequestTimeoutError,
)

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def test_all_is_stored_in_order_and_counted(js: JetStream, stream: Stream) -> None:
    async with js.publisher(window=100) as publisher:
        for number in range(1_000):
            assert await publisher.send(f"{stream.name}.{number % 3}", b"%d" % number) == number
            assert publisher.in_flight <= 100
        sent = await publisher.send_many((f"{stream.name}.m", b"%d" % n) for n in range(1_000))
        await publisher.flush()
        assert (sent, publisher.sent, publisher.acked, publisher.failed) == (1_000, 2_000, 2_000, 0)
        assert publisher.last_sequence == 2_000
    consumer = await stream.create_consumer(durable_name="c", max_ack_pending=-1)
    batch = await consumer.fetch(2_000)
    assert [int(p) for p in batch.payloads] == [*range(1_000), *range(1_000)]


async def test_headers_and_ids_are_sent(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    async with js.publisher() as publisher:
        await publisher.send(subject, b"1", {"A": "x"}, msg_id="one")
        await publisher.send(subject, b"1", msg_id="one")
        await publisher.send_many([(subject, b"2", {"B": "y"}), (subject, b"3")])
        await publisher.flush()
        assert publisher.duplicates == 1
    first, second = await stream.get_message(1), await stream.get_message(2)
    assert first.headers["A"] == "x"
    assert first.headers["Nats-Msg-Id"] == "one"
    assert list(second.headers.items()) == [("B", "y")]
    assert (await stream.info()).state.messages == 3


async def test_each_refusal_is_reported_with_its_number(js: JetStream, stream: Stream) -> None:
    await stream.update(max_msg_size=50)
    publisher = js.publisher()
    with pytest.raises(PublishError, match=r"2 message\(s\).*number 1 on") as caught:
        async with publisher:
            for size in (10, 60, 20, 70):
                await publisher.send(f"{stream.name}.a", b"x" * size)
    assert [failure.index for failure in caught.value.failures] == [1, 3]
    assert all(isinstance(f.error, JetStreamApiError) for f in caught.value.failures)
    assert (publisher.acked, publisher.failed, publisher.in_flight) == (2, 2, 0)


async def test_failures_may_go_to_a_callback(js: JetStream, stream: Stream) -> None:
    failures: list[PublishFailure] = []
    async with js.publisher(on_failure=failures.append, retries=1) as publisher:
        await publisher.send("no.stream.here", b"")
        await publisher.send(f"{stream.name}.a", b"")
    (failure,) = failures
    assert (failure.index, failure.subject) == (0, "no.stream.here")
    assert isinstance(failure.error, NoRespondersError)


async def test_what_cannot_be_sent_is_refused_and_the_rest_goes_on(
    js: JetStream, stream: Stream
) -> None:
    subject = f"{stream.name}.a"
    async with js.publisher() as publisher:
        with pytest.raises(InvalidSubjectError):
            await publisher.send("a b")
        with pytest.raises(LimitExceededError):
            await publisher.send(subject, b"x" * (js.connection.max_payload + 1))
        with pytest.raises(InvalidSubjectError):
            await publisher.send_many([(subject, b"1"), ("a b", b"2"), (subject, b"3")])
        assert await publisher.send(subject, b"4") == 1
    assert publisher.acked == 2
    with pytest.raises(ConnectionClosedError, match="not open: enter it with `async with`"):
        await publisher.send(subject, b"5")
    with pytest.raises(ConfigurationError):
        js.publisher(window=0)


async def test_bytes_in_flight_are_bounded(js: JetStream, stream: Stream) -> None:
    async with js.publisher(window_bytes=10_000) as publisher:
        for _ in range(100):
            await publisher.send(f"{stream.name}.a", b"x" * 2_000)
            assert publisher.in_flight <= 5


async def test_a_failing_block_does_not_wait_for_acks(js: JetStream, stream: Stream) -> None:
    failures: list[PublishFailure] = []
    with pytest.raises(ZeroDivisionError):
        async with js.publisher(on_failure=failures.append) as publisher:
            await publisher.send(f"{stream.name}.a")
            raise ZeroDivisionError
    assert len(failures) == 1


async def test_a_message_nobody_answers_is_sent_again_and_then_reported(js: JetStream) -> None:
    heard = await js.connection.subscribe("mute")
    failures: list[PublishFailure] = []
    async with js.publisher(ack_timeout=0.05, retries=2, on_failure=failures.append) as publisher:
        await publisher.send("mute", b"?")
    assert isinstance(failures[0].error, RequestTimeoutError)
    assert heard.pending_messages == 3


async def test_each_message_of_a_deduplicating_publisher_has_an_id_of_its_own(
    js: JetStream, stream: Stream
) -> None:
    async with js.publisher(deduplicate=True) as publisher:
        for number in range(20):
            await publisher.send(f"{stream.name}.{number % 3}", b"%d" % number)
        await publisher.send_many((f"{stream.name}.a", b"%d" % n) for n in range(20, 1_200))
        await publisher.send_many([(f"{stream.name}.a", b"1200", {"A": "b"})])
        await publisher.send(f"{stream.name}.a", b"1201", msg_id="mine")
        await publisher.flush()
        assert (publisher.acked, publisher.duplicates, publisher.failed) == (1_202, 0, 0)
    consumer = await stream.create_consumer(ack_policy="none")
    batch = await consumer.fetch(2_000, no_wait=True)
    assert [int(payload) for payload in batch.payloads] == list(range(1_202))
    ids = [str(message.headers.get("Nats-Msg-Id")) for message in batch]
    prefix = ids[0].partition(".")[0]
    assert ids == [*(f"{prefix}.{number}" for number in range(1_201)), "mine"]


async def test_an_id_counts_for_the_size_of_its_message(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    size_max = js.connection.max_payload
    async with js.publisher(deduplicate=True) as publisher:
        await publisher.send(subject, b"")
        room = size_max - len(b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n") - 22 - len(".1")
        assert await publisher.send_many([(subject, bytes(room))]) == 1
        with pytest.raises(LimitExceededError):
            await publisher.send_many([(subject, bytes(room + 1))])
        with pytest.raises(LimitExceededError):
            await publisher.send(subject, bytes(room + 1))
        await publisher.flush()
        assert publisher.acked == 2


@pytest.mark.parametrize("deduplicate", [False, True])
async def test_nothing_is_lost_when_the_server_is_killed_in_between(
    nats_server: Callable[..., peers.ServerProcess], deduplicate: bool
) -> None:
    server = nats_server(sync="always")
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.>"])
        async with js.publisher(window=500, deduplicate=deduplicate) as publisher:
            for number in range(6_000):
                await publisher.send("s.a", b"%d" % number)
                if number == 3_000:
                    server.kill()
                    server.start_again()
            await publisher.flush()
            assert (publisher.acked, publisher.failed) == (6_000, 0)
        consumer = await js.create_consumer("S", durable_name="c", max_ack_pending=-1)
        seen: list[int] = []
        while batch := await consumer.fetch(5_000, no_wait=True):
            seen += [int(payload) for payload in batch.payloads]
        assert set(seen) == set(range(6_000))
        if deduplicate:
            assert len(seen) == 6_000


async def test_without_retries_a_lost_connection_reports_what_was_in_flight(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server()
    failures: list[PublishFailure] = []
    async with connect(server.url, reconnect=False) as connection:
        await connection.subscribe("mute")
        async with connection.jetstream().publisher(
            retries=0, on_failure=failures.append
        ) as publisher:
            for _ in range(3):
                await publisher.send("mute")
            await connection.flush()
            server.kill()
            await asyncio.wait_for(publisher.flush(), 5)
    assert [failure.index for failure in failures] == [0, 1, 2]
