"""The publisher of fast batches: every message ends in an ack or a reported failure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import chaos
import peers
from headrace.client import JetStream, Message, PublishError, PublishFailure, Stream, connect
from headrace.client.publish.fast_publisher import FastPublisher
from headrace.embedded import Broker
from headrace.errors import (
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedUnknownError,
    InvalidSubjectError,
    JetStreamApiError,
    LimitExceededError,
    NoRespondersError,
    ProtocolError,
    RequestTimeoutError,
)
from portions import portion
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

RESETS = portion(30, 12)


@pytest.fixture
async def fast(stream: Stream) -> AsyncIterator[Stream]:
    await stream.update(allow_batched=True)
    yield stream


async def payloads(js: JetStream, stream: str) -> list[int]:
    consumer = await js.create_consumer(stream, durable_name="c", max_ack_pending=-1)
    seen: list[int] = []
    while batch := await consumer.fetch(5_000, no_wait=True):
        seen += [int(payload) for payload in batch.payloads]
    return seen


async def test_all_is_stored_in_order_and_counted(js: JetStream, fast: Stream) -> None:
    async with js.publisher(fast=True, window=100) as publisher:
        for number in range(1_000):
            assert await publisher.send(f"{fast.name}.{number % 3}", b"%d" % number) == number
            assert publisher.in_flight <= 100
        sent = await publisher.send_many((f"{fast.name}.m", b"%d" % n) for n in range(1_000))
        await publisher.flush()
        assert (sent, publisher.sent, publisher.acked, publisher.failed) == (1_000, 2_000, 2_000, 0)
        assert publisher.last_sequence == 2_000
    assert await payloads(js, fast.name) == [*range(1_000), *range(1_000)]


async def test_headers_and_ids_are_sent(js: JetStream, fast: Stream) -> None:
    subject = f"{fast.name}.a"
    async with js.publisher(fast=True) as publisher:
        await publisher.send(subject, b"1", {"A": "x"}, msg_id="one")
        await publisher.send(subject, b"1", msg_id="one")
        await publisher.send_many([(subject, b"2", {"B": "y"}), (subject, b"3")])
    first, second = await fast.get_message(1), await fast.get_message(2)
    assert first.headers["A"] == "x"
    assert first.headers["Nats-Msg-Id"] == "one"
    assert list(second.headers.items()) == [("B", "y")]
    assert (await fast.info()).state.messages == 3
    assert publisher.acked == 4


async def test_each_refusal_is_reported_with_its_number_and_the_rest_is_stored(
    js: JetStream, fast: Stream
) -> None:
    await fast.update(max_msg_size=50)
    publisher = js.publisher(fast=True)
    sizes = (60, 10, 60, 60, *(20,) * 20, 70, 30, 80)
    with pytest.raises(PublishError, match=r"5 message\(s\).*number 0 on") as caught:
        async with publisher:
            await publisher.send_many((f"{fast.name}.a", b"x" * size) for size in sizes)
    indices = [index for index, size in enumerate(sizes) if size > 50]
    assert [failure.index for failure in caught.value.failures] == indices
    assert all(isinstance(f.error, JetStreamApiError) for f in caught.value.failures)
    assert (publisher.acked, publisher.failed, publisher.in_flight) == (22, 5, 0)
    assert (await fast.info()).state.messages == 22


async def test_an_expectation_that_does_not_hold_fails_its_message_alone(
    js: JetStream, fast: Stream
) -> None:
    failures: list[PublishFailure] = []
    subject = f"{fast.name}.a"
    async with js.publisher(fast=True, on_failure=failures.append) as publisher:
        for number in range(30):
            expected = {"Nats-Expected-Last-Sequence": "7"} if number in (10, 20) else None
            await publisher.send(subject, b"%d" % number, expected)
    assert [failure.index for failure in failures] == [10, 20]
    assert await payloads(js, fast.name) == [n for n in range(30) if n not in (10, 20)]


async def test_a_subject_of_no_stream_fails_its_message_alone(js: JetStream, fast: Stream) -> None:
    failures: list[PublishFailure] = []
    async with js.publisher(fast=True, on_failure=failures.append, retries=1) as publisher:
        await publisher.send("no.stream.here", b"")
        for number in range(20):
            subject = "no.stream.here" if number == 10 else f"{fast.name}.a"
            await publisher.send(subject, b"%d" % number)
    assert [(f.index, f.subject) for f in failures] == [
        (0, "no.stream.here"),
        (11, "no.stream.here"),
    ]
    assert all(isinstance(failure.error, NoRespondersError) for failure in failures)
    assert await payloads(js, fast.name) == [n for n in range(20) if n != 10]


async def test_another_streams_subject_is_named_or_served(js: JetStream, fast: Stream) -> None:
    """Which of the two streams answers first is open: if it is this one, a new batch begins there. Then
    the message behind it is the one of another stream, and the same is open once more."""
    name = f"{fast.name}_OTHER"  # the server is shared with other tests
    other = await js.create_stream(name=name, subjects=[name], allow_batched=True)
    failures: list[PublishFailure] = []
    async with js.publisher(fast=True, on_failure=failures.append) as publisher:
        for number in range(5):
            await publisher.send(name if number == 3 else f"{fast.name}.a", b"%d" % number)
    failed = [failure.index for failure in failures]
    assert failed in ([], [3], [4])
    assert (publisher.acked, publisher.failed) == (5 - len(failed), len(failed))
    for failure in failures:
        assert isinstance(failure.error, ConfigurationError)
        assert "another stream" in str(failure.error)
    assert await payloads(js, name) == [n for n in (3,) if n not in failed]
    assert await payloads(js, fast.name) == [n for n in (0, 1, 2, 4) if n not in failed]
    await other.delete()


async def test_a_stream_that_takes_none_says_so(js: JetStream, stream: Stream) -> None:
    subject = f"{stream.name}.a"
    with pytest.raises(PublishError, match="allow_batched") as caught:
        async with js.publisher(fast=True) as publisher:
            await publisher.send(subject, b"1")
            with pytest.raises(ConfigurationError, match="batch publish is disabled"):
                await publisher.send(subject, b"2")
            with pytest.raises(ConfigurationError, match="fast=False"):
                await publisher.send_many([(subject, b"3")])
    assert [failure.index for failure in caught.value.failures] == [0]
    assert (await stream.info()).state.messages == 0


async def test_what_cannot_be_sent_is_refused_and_the_rest_goes_on(
    js: JetStream, fast: Stream
) -> None:
    subject = f"{fast.name}.a"
    async with js.publisher(fast=True) as publisher:
        with pytest.raises(InvalidSubjectError):
            await publisher.send("a b")
        with pytest.raises(LimitExceededError):
            await publisher.send(subject, b"x" * (js.connection.max_payload + 1))
        await publisher.send(subject, b"0")
        with pytest.raises(InvalidSubjectError):
            await publisher.send_many([(subject, b"1"), ("a b", b"2"), (subject, b"3")])
        assert await publisher.send(subject, b"4") == 2
    assert publisher.acked == 3
    with pytest.raises(ConnectionClosedError, match="not open"):
        await publisher.send(subject, b"5")
    with pytest.raises(ConfigurationError):
        js.publisher(fast=True, window=0)


async def test_what_is_like_bytes_is_sent_as_it_was_when_given(js: JetStream, fast: Stream) -> None:
    subject, buffer = f"{fast.name}.a", bytearray(b"1")
    async with js.publisher(fast=True) as publisher:
        await publisher.send(subject, b"0")
        await publisher.send(subject, buffer)
        await publisher.send_many([(subject, memoryview(buffer))])
        buffer[0] = ord("9")
        with pytest.raises(ConfigurationError):
            await publisher.send(subject, "text")  # type: ignore[arg-type]
    assert await payloads(js, fast.name) == [0, 1, 1]


async def test_bytes_in_flight_are_bounded(js: JetStream, fast: Stream) -> None:
    async with js.publisher(fast=True, window_bytes=10_000) as publisher:
        for _ in range(60):
            await publisher.send(f"{fast.name}.a", b"x" * 2_000)
            assert publisher.in_flight <= 5
        await publisher.send_many([(f"{fast.name}.a", b"x" * 2_000)] * 60)
    assert publisher.acked == 120


async def test_what_is_sent_now_and_then_is_acked_without_a_flush(
    js: JetStream, fast: Stream
) -> None:
    async with js.publisher(fast=True) as publisher:

        def acked(number: int) -> bool:
            return publisher.acked >= number

        for number in range(1, 4):
            await publisher.send(f"{fast.name}.a")
            await until(partial(acked, number), within=5)


async def test_several_tasks_may_send(js: JetStream, fast: Stream) -> None:
    async with js.publisher(fast=True, window=50) as publisher:

        async def work(name: str) -> None:
            for number in range(300):
                await publisher.send(f"{fast.name}.{name}", b"%d" % number)
            await publisher.flush()

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(work(name))
    assert publisher.acked == 900
    for name in "abc":
        consumer = await fast.create_consumer(filter_subject=f"{fast.name}.{name}")
        batch = await consumer.fetch(300)
        assert [int(p) for p in batch.payloads] == [*range(300)]


async def test_several_publishers_share_a_stream(js: JetStream, fast: Stream) -> None:
    async def work(name: str) -> int:
        async with js.publisher(fast=True) as publisher:
            await publisher.send_many((f"{fast.name}.{name}", b"%d" % n) for n in range(2_000))
        return publisher.acked

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(name)) for name in "abcd"]
    assert [task.result() for task in tasks] == [2_000] * 4
    assert (await fast.info()).state.messages == 8_000


async def test_a_failing_block_does_not_wait_for_acks(js: JetStream, fast: Stream) -> None:
    failures: list[PublishFailure] = []
    with pytest.raises(ZeroDivisionError):
        async with js.publisher(fast=True, on_failure=failures.append) as publisher:
            await publisher.send(f"{fast.name}.a")
            raise ZeroDivisionError
    assert len(failures) == 1


async def test_a_message_nobody_answers_is_sent_again_and_then_reported(js: JetStream) -> None:
    await js.connection.subscribe("mute")
    failures: list[PublishFailure] = []
    async with js.publisher(
        fast=True, ack_timeout=0.05, retries=2, on_failure=failures.append
    ) as publisher:
        await publisher.send("mute", b"?")
    assert isinstance(failures[0].error, RequestTimeoutError)
    assert "sent 3 time(s)" in str(failures[0].error)


@pytest.mark.parametrize("deduplicate", [False, True])
async def test_nothing_is_lost_when_the_server_is_killed_in_between(
    nats_server: Callable[..., peers.ServerProcess], deduplicate: bool
) -> None:
    server = nats_server(sync="always")
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.>"], allow_batched=True)
        async with js.publisher(fast=True, window=300, deduplicate=deduplicate) as publisher:
            for number in range(3_000):
                await publisher.send("s.a", b"%d" % number)
                if number == 1_500:
                    server.kill()
                    server.start_again()
            await publisher.flush()
            assert (publisher.acked, publisher.failed) == (3_000, 0)
        seen = await payloads(js, "S")
        assert set(seen) == set(range(3_000))
        if deduplicate:
            assert len(seen) == 3_000


async def test_what_our_broker_acknowledged_is_there_after_it_was_killed(
    headrace_server: Callable[..., peers.ServerProcess],
) -> None:
    server = headrace_server()
    failures: list[PublishFailure] = []
    async with connect(server.url, reconnect_wait=0.02, reconnect_wait_max=0.05) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.>"], allow_batched=True)
        async with js.publisher(fast=True, retries=0, on_failure=failures.append) as publisher:

            async def publish() -> None:
                while not failures:
                    await publisher.send_many(("s.a", b"%d" % publisher.sent) for _ in range(1))
                    if publisher.sent % 100 == 0:
                        await asyncio.sleep(0)

            task = asyncio.create_task(publish())
            while publisher.acked < 2_000:
                await asyncio.sleep(0.001)
            server.kill()
            await task
            acked = publisher.acked
            server.start_again()
        seen = await payloads(js, "S")
        assert seen[:acked] == [*range(acked)]
        assert acked <= failures[0].index


async def test_without_retries_a_lost_connection_reports_what_was_in_flight(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    server = nats_server()
    failures: list[PublishFailure] = []
    async with connect(server.url, reconnect=False) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.>"], allow_batched=True)
        async with js.publisher(fast=True, retries=0, on_failure=failures.append) as publisher:
            for _ in range(3):
                await publisher.send("s.a")
            server.kill()
            await asyncio.wait_for(publisher.flush(), 5)
    assert [failure.index for failure in failures] in ([0, 1, 2], [])


async def test_a_lost_connection_alone_costs_no_message_and_brings_none_twice(
    js: JetStream, fast: Stream
) -> None:
    session = js.connection._session
    async with js.publisher(fast=True, window=300) as publisher:
        for number in range(3_000):
            await publisher.send(f"{fast.name}.a", b"%d" % number)
            if number % 1_000 == 500:
                link = session.link
                assert link is not None
                link.transport.abort()
                await asyncio.sleep(0)
    assert (publisher.acked, publisher.failed) == (3_000, 0)
    assert await payloads(js, fast.name) == [*range(3_000)]


@pytest.mark.parametrize("deduplicate", [False, True])
async def test_many_resets_lose_nothing(
    reference_server: peers.ServerProcess, deduplicate: bool
) -> None:
    source = random.Random(1)
    failures: list[PublishFailure] = []
    options: dict[str, Any] = {"reconnect_wait": 0.005, "reconnect_wait_max": 0.01}
    async with (
        chaos.ChaosProxy(
            reference_server.host, reference_server.port, reference_server.scheme
        ) as proxy,
        connect(proxy.url, **options) as connection,
    ):
        js = connection.jetstream()
        stream = await js.create_stream(
            name="RESETS", subjects=["resets"], storage="memory", allow_batched=True
        )
        over = asyncio.Event()

        async def cut() -> None:
            for number in range(1, RESETS + 1):
                await asyncio.sleep(source.uniform(0, 0.02))
                proxy.reset()
                while connection.reconnects < number:
                    await asyncio.sleep(0.002)
            over.set()

        cutting = asyncio.create_task(cut())
        async with js.publisher(
            fast=True,
            window=300,
            retries=1_000,
            deduplicate=deduplicate,
            on_failure=failures.append,
        ) as publisher:
            while not over.is_set():
                await publisher.send("resets", b"%d" % publisher.sent)
                if publisher.sent % 50 == 0:
                    await asyncio.sleep(0)
        await cutting
        assert not failures
        assert publisher.acked == publisher.sent
        seen = await payloads(js, "RESETS")
        assert set(seen) == set(range(publisher.sent))
        if deduplicate:
            assert len(seen) == publisher.sent
        await stream.delete()


async def answering(js: JetStream, answers: list[bytes]) -> asyncio.Task[None]:
    """Somebody on the subject ``mute`` who says these things, one to each message."""
    heard = await js.connection.subscribe("mute")

    async def answer() -> None:
        for payload in answers:
            message = await anext(heard)
            await js.connection.publish(message.reply, payload)

    return asyncio.create_task(answer())


async def test_a_server_that_knows_no_fast_batches_is_named(js: JetStream) -> None:
    task = await answering(js, [b'{"stream":"S","seq":7}'])
    async with js.publisher(fast=True) as publisher:
        await publisher.send("mute", b"1")
        with pytest.raises(ConfigurationError, match=r"2\.14"):
            await publisher.send("mute", b"2")
    assert (publisher.acked, publisher.failed, publisher.last_sequence) == (1, 0, 7)
    await task


async def test_a_stream_with_too_many_batches_is_asked_again(js: JetStream) -> None:
    busy = b'{"error":{"code":429,"err_code":10211,"description":"x"},"stream":"S","seq":0}'
    taken = b'{"type":"ack","seq":0,"msgs":9}'
    task = await answering(js, [busy, taken, b'{"stream":"S","seq":9,"batch":"b","count":1}'])
    async with js.publisher(fast=True) as publisher:
        await publisher.send("mute", b"1")
    assert (publisher.acked, publisher.last_sequence) == (1, 9)
    await task


async def test_what_is_not_understood_is_reported(js: JetStream) -> None:
    failures: list[PublishFailure] = []
    task = await answering(js, [b"what?"])
    async with js.publisher(fast=True, on_failure=failures.append) as publisher:
        await publisher.send("mute", b"1")
    assert isinstance(failures[0].error, ProtocolError)
    await task


async def test_a_batch_the_stream_forgot_is_sent_again_or_reported(js: JetStream) -> None:
    taken = b'{"type":"ack","seq":0,"msgs":9}'
    unknown = b'{"error":{"code":400,"err_code":10208,"description":"x"},"stream":"S","seq":0}'
    failures: list[PublishFailure] = []
    task = await answering(js, [taken, unknown] * 2)
    async with js.publisher(fast=True, retries=1, on_failure=failures.append) as publisher:
        await publisher.send("mute", b"1")
    assert [type(failure.error) for failure in failures] == [DisconnectedUnknownError]
    await task


START, END, PING = "0", "3", "4"
TAKEN = b'{"type":"ack","seq":0,"msgs":9}'


async def leading(js: JetStream, answer: Callable[[str, int], bytes | None]) -> list[str]:
    """Somebody on the subject ``mute`` who says to each operation at a place of a batch what ``answer`` says.
    The operations heard."""
    heard: list[str] = []

    async def respond(message: Message) -> None:
        place, operation = message.reply.split(".")[-3:-1]
        heard.append(operation)
        if (payload := answer(operation, int(place))) is not None:
            await js.connection.publish(message.reply, payload)

    await js.connection.subscribe("mute", callback=respond)
    return heard


async def test_a_batch_whose_next_leader_knows_of_no_end_is_ended_again(js: JetStream) -> None:
    ends = 0

    def answer(operation: str, place: int) -> bytes | None:
        nonlocal ends
        ends += operation == END
        if operation == END and ends == 2:
            return b'{"stream":"S","seq":3,"batch":"b","count":%d}' % (place - 1)
        if operation == PING:
            return b'{"type":"ack","seq":%d,"msgs":1}' % place
        return TAKEN if operation == START else None

    heard = await leading(js, answer)
    async with asyncio.timeout(10), js.publisher(fast=True, ack_timeout=0.6) as publisher:
        await publisher.send_many([("mute", b"")] * 3)
    assert (publisher.acked, publisher.failed, publisher.last_sequence) == (3, 0, 3)
    assert heard.count(START) == 1
    assert heard[-3:] == [END, PING, END]


@pytest.mark.parametrize("deduplicate", [False, True])
async def test_a_batch_that_never_ends_is_left(js: JetStream, deduplicate: bool) -> None:
    batches = 0

    def answer(operation: str, place: int) -> bytes | None:
        nonlocal batches
        batches += operation == START
        if operation == END and batches == 2:
            return b'{"stream":"S","seq":1,"batch":"b","count":%d}' % (place - 1)
        return TAKEN if operation in (START, PING) else None

    heard = await leading(js, answer)
    retries = 1 if deduplicate else 0
    other = js.connection.jetstream(delivery_timeout=1)
    failures: list[PublishFailure] = []
    async with (
        asyncio.timeout(10),
        other.publisher(
            fast=True,
            ack_timeout=0.6,
            retries=retries,
            deduplicate=deduplicate,
            on_failure=failures.append,
        ) as publisher,
    ):
        await publisher.send("mute")
    assert PING in heard
    if deduplicate:  # sent again after ack_timeout
        assert (publisher.acked, batches) == (1, 2)
    else:
        assert (publisher.acked, batches) == (0, 1)
        assert "no answer within 1 s, sent 1 time(s)" in str(failures[0].error)


async def test_a_batch_is_not_left_for_the_time_before_its_connection_was_lost(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(operation: str, place: int) -> bytes | None:
        if operation == END:
            return b'{"stream":"S","seq":3,"batch":"b","count":%d}' % (place - 1)
        return {START: TAKEN, PING: b'{"type":"ack","seq":0,"msgs":9}'}.get(operation)

    heard = await leading(js, answer)
    async with asyncio.timeout(10), js.publisher(fast=True, deduplicate=True) as publisher:
        assert isinstance(publisher, FastPublisher)
        restored = publisher.connection_restored

        def look_at_once() -> None:
            restored()
            publisher._beat()

        monkeypatch.setattr(publisher, "connection_restored", look_at_once)
        await publisher.send_many([("mute", b"")] * 3)
        publisher._moved -= 60  # nothing was acked for so long
        assert publisher._timer is not None
        publisher._timer.cancel()  # or it sees that there is no connection
        link = js.connection._session.link
        assert link is not None
        link.transport.abort()
        await until(lambda: PING in heard, "the stream is not asked")
    assert (publisher.acked, heard.count(START)) == (3, 1)


async def test_in_process_all_is_stored_in_order(tmp_path: Path) -> None:
    async with (
        Broker(port=-1, store_dir=tmp_path / "store") as broker,
        broker.connect() as connection,
    ):
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.>"], allow_batched=True)
        async with js.publisher(fast=True, deduplicate=True) as publisher:
            await publisher.send_many(("s.a", b"%d" % number) for number in range(1_500))
        async with js.publisher(fast=True) as publisher:
            await publisher.send_many(("s.a", b"%d" % number) for number in range(1_500))
            await publisher.send("s.a", b"1500")
        assert await payloads(js, "S") == [*range(1_500), *range(1_501)]


async def test_more_is_under_way_when_answers_take_long(js: JetStream) -> None:
    heard = await js.connection.subscribe("mute")

    async def answer() -> None:
        async for message in heard:
            place, operation = message.reply.split(".")[-3:-1]
            if operation == "3":
                total = b'{"stream":"S","seq":%b,"batch":"b","count":%d}'
                body = total % (place.encode(), int(place) - 1)
                await js.connection.publish(message.reply, body)
                return
            if place == "1" or int(place) % 10 == 0:
                seq = 0 if place == "1" else int(place)
                await asyncio.sleep(0.004)
                await js.connection.publish(
                    message.reply, b'{"type":"ack","seq":%d,"msgs":10}' % seq
                )

    task = asyncio.create_task(answer())
    most = 0
    async with js.publisher(fast=True, window=100) as publisher:
        for _ in range(400):
            await publisher.send("mute")
            most = max(most, publisher.in_flight)
    assert publisher.acked == 400
    assert 60 <= most <= 100
    await task


async def test_what_is_lost_on_the_way_is_sent_again_in_its_place(
    js: JetStream, fast: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(3)
    put = FastPublisher._put
    lost = 0

    def lossy(self: FastPublisher, commands: list[bytes]) -> None:
        nonlocal lost
        left = [command for command in commands if source.random() > 0.004]
        lost += len(commands) - len(left)
        put(self, left)

    monkeypatch.setattr(FastPublisher, "_put", lossy)
    failures: list[PublishFailure] = []
    async with js.publisher(
        fast=True, window=60, ack_timeout=0.2, on_failure=failures.append
    ) as publisher:
        await publisher.send_many((f"{fast.name}.a", b"%d" % n) for n in range(2_000))
        await publisher.flush()
    assert lost > 3
    assert not failures
    assert await payloads(js, fast.name) == [*range(2_000)]
