"""Atomic batches, counters and schedules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import peers
from headrace.client import BatchRefusedError, JetStream, Stream, connect, tracing
from headrace.errors import (
    ConfigurationError,
    ConnectionClosedError,
    DisconnectedError,
    HeadraceError,
    InvalidSubjectError,
    JetStreamApiError,
    LimitExceededError,
    NoRespondersError,
    ProtocolError,
)
from headrace.wire.frames import MSG

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
async def stream(js: JetStream) -> AsyncIterator[Stream]:
    yield await js.create_stream(
        name="ATOMIC", subjects=["atomic.>"], storage="memory", allow_atomic=True, max_msg_size=1000
    )
    if not js.connection.is_closed:
        await js.delete_stream("ATOMIC")


async def count(stream: Stream) -> int:
    return (await stream.info()).state.messages


async def test_a_batch_is_stored_as_a_whole(js: JetStream, stream: Stream) -> None:
    await js.publish("atomic.before", b"")
    async with js.batch() as batch:
        numbers = [batch.add(f"atomic.{n}", b"%d" % n, headers={"N": str(n)}) for n in range(1000)]
        assert numbers == list(range(1000))
        assert await count(stream) == 1
    assert batch.ack is not None
    assert (batch.ack.seq, batch.ack.count, batch.first_sequence) == (1001, 1000, 2)
    message = await stream.get_message(7)
    assert (message.subject, message.payload, message.headers["N"]) == ("atomic.5", b"5", "5")
    async with js.batch() as alone:
        alone.add("atomic.x", b"1")
        ack = await alone.commit()
    assert (ack.seq, ack.count, alone.ack) == (1002, 1, ack)


async def test_a_failed_block_stores_nothing(js: JetStream, stream: Stream) -> None:
    with pytest.raises(RuntimeError):
        async with js.batch() as batch:
            batch.add("atomic.a")
            raise RuntimeError
    async with js.batch() as batch:
        batch.add("atomic.a")
        batch.discard()
    async with js.batch() as batch:
        pass
    assert (batch.ack, batch.first_sequence, len(batch)) == (None, 0, 0)
    assert await count(stream) == 0
    with pytest.raises(ConfigurationError, match="committed or discarded"):
        batch.add("atomic.a")
    with pytest.raises(ConfigurationError, match="nothing was added"):
        await js.batch().commit()


async def test_expectations_hold_for_all_or_none(js: JetStream, stream: Stream) -> None:
    first = await js.publish("atomic.a", b"1")
    async with js.batch() as batch:
        batch.add("atomic.a", b"2", expected_last_subject_sequence=first.seq)
        batch.add("atomic.b", b"1", expected_last_subject_sequence=0)
    assert batch.ack is not None
    assert batch.ack.seq == 3
    batch = js.batch()
    batch.add("atomic.c", b"1")
    batch.add("atomic.a", b"3", expected_last_subject_sequence=first.seq)
    with pytest.raises(
        BatchRefusedError, match=r"nothing of the batch was stored: .*wrong last seq"
    ):
        await batch.commit()
    batch = js.batch()
    batch.add("atomic.c", b"1", expected_last_sequence=3, expected_stream="ATOMIC", msg_id="c")
    with pytest.raises(ConfigurationError, match="first message only"):
        batch.add("atomic.c", b"1", expected_last_sequence=4)
    await batch.commit()
    assert await count(stream) == 4


async def test_a_refusal_says_which_message_it_was(js: JetStream, stream: Stream) -> None:
    batch = js.batch()
    for size in (10, 2000, 10):
        batch.add("atomic.a", bytes(size))
    with pytest.raises(
        BatchRefusedError, match=r"message 1 on 'atomic\.a'.*size exceeds"
    ) as caught:
        await batch.commit()
    assert (caught.value.index, caught.value.err_code) == (1, 10054)
    batch = js.batch()
    for subject in ("atomic.a", "nobody.has.this", "atomic.a"):
        batch.add(subject)
    with pytest.raises(NoRespondersError, match=r"'nobody\.has\.this' of message 1"):
        await batch.commit()
    batch = js.batch()
    for _ in range(1001):
        batch.add("atomic.a")
    with pytest.raises(BatchRefusedError, match="too large") as caught:
        await batch.commit()
    assert (caught.value.index, caught.value.err_code) == (None, 10199)
    batch = js.batch()
    for _ in range(2):
        batch.add("atomic.a", msg_id="same")
    with pytest.raises(BatchRefusedError, match="duplicate message id"):
        await batch.commit()
    with pytest.raises(InvalidSubjectError):
        js.batch().add("a b")
    with pytest.raises(LimitExceededError):
        js.batch().add("atomic.a", bytes(js.connection.max_payload))
    assert await count(stream) == 0


async def test_a_stream_without_batches_says_so(js: JetStream) -> None:
    await js.create_stream(name="PLAIN", subjects=["plain.>"], storage="memory")
    batch = js.batch()
    batch.add("plain.a")
    batch.add("plain.b")
    with pytest.raises(HeadraceError, match=r"message 0.*atomic publish is disabled|allow_atomic"):
        await batch.commit()
    assert (await (await js.stream("PLAIN")).info()).state.messages == 0
    await js.delete_stream("PLAIN")


async def test_a_server_that_may_be_too_old_is_asked_first(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.publish.atomic_batch.API_LEVEL_MIN", 99)
    await js.create_stream(name="PLAIN", subjects=["plain.>"], storage="memory")
    for _ in range(2):
        async with js.batch() as batch:
            batch.add("atomic.a")
    assert await count(stream) == 2
    js = js.connection.jetstream()
    batch = js.batch()
    batch.add("plain.a")
    with pytest.raises(ConfigurationError, match="'PLAIN' has no atomic batches"):
        await batch.commit()
    batch = js.batch()
    batch.add("nobody.has.this")
    with pytest.raises(NoRespondersError):
        await batch.commit()
    assert (await (await js.stream("PLAIN")).info()).state.messages == 0
    await js.delete_stream("PLAIN")


async def test_batches_of_one_stream_do_not_mix(js: JetStream, stream: Stream) -> None:
    async def write(writer: int) -> None:
        async with js.batch() as batch:
            for number in range(50):
                batch.add(f"atomic.{writer}", b"%d" % number)

    await asyncio.gather(*(write(writer) for writer in range(10)))
    consumer = await stream.create_consumer(ack_policy="none", inactive_threshold=60)
    messages = list(await consumer.fetch(500))
    subjects = [message.subject for message in messages]
    assert len(subjects) == 500
    assert all(len(set(subjects[at : at + 50])) == 1 for at in range(0, 500, 50))


async def test_a_lost_connection_leaves_the_answer_open(
    js: JetStream, stream: Stream, reference_server: peers.ServerProcess
) -> None:
    batch = js.batch()
    batch.add("atomic.a")
    committing = asyncio.ensure_future(batch.commit())
    await asyncio.sleep(0)
    link = js.connection._session.link
    assert link is not None
    link.transport.abort()
    with pytest.raises(DisconnectedError):
        await committing
    batch = js.batch()
    batch.add("atomic.a")
    await js.connection.close()
    with pytest.raises(ConnectionClosedError):
        await batch.commit()
    async with connect(reference_server.url) as other:
        await other.jetstream().delete_stream("ATOMIC")


async def test_messages_of_a_batch_carry_the_trace(
    stream: Stream, reference_server: peers.ServerProcess
) -> None:
    context = tracing.TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    async with connect(reference_server.url, tracing=True) as connection:
        with tracing.use(context):
            async with connection.jetstream().batch() as batch:
                batch.add("atomic.a")
    assert context.trace_id in (await stream.get_message(1)).headers["traceparent"]


async def test_counters_count(js: JetStream) -> None:
    stream = await js.create_stream(
        name="COUNT",
        subjects=["count.>"],
        storage="memory",
        allow_msg_counter=True,
        allow_direct=True,
    )
    assert await stream.counter("count.a") == 0
    assert await js.increment("count.a") == 1
    assert await js.increment("count.a", 10**30) == 10**30 + 1
    assert await js.increment("count.a", -2) == 10**30 - 1
    assert await stream.counter("count.a") == 10**30 - 1
    assert await js.increment("count.b", 0, headers={"Why": "to begin with"}) == 0
    await js.delete_stream("COUNT")
    stream = await js.create_stream(name="PLAIN", subjects=["plain.>"], storage="memory")
    with pytest.raises(JetStreamApiError, match="counters is disabled"):
        await js.increment("plain.a")
    await js.publish("plain.a", b"5")
    with pytest.raises(ConfigurationError, match="not the message of a counter"):
        await stream.counter("plain.a")
    await js.delete_stream("PLAIN")


async def test_messages_come_when_scheduled(js: JetStream) -> None:
    stream = await js.create_stream(
        name="LATER",
        subjects=["later.>"],
        storage="memory",
        allow_msg_schedules=True,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
    )
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    await js.schedule("later.once", b"now", target="later.out", at=soon, headers={"A": "b"}, ttl=60)
    await js.schedule("later.again", b"tick", target="later.tick", every=1)
    await js.schedule(
        "later.cron", b"", target="later.out", cron="@daily", time_zone="Europe/Berlin"
    )
    await js.schedule(
        "later.five", b"", target="later.out", cron="0 6 * * mon-fri", time_zone="Europe/Berlin"
    )
    five = await stream.get_last_message("later.five")
    assert five.headers["Nats-Schedule"] == "0 0 6 * * mon-fri"
    consumer = await stream.create_consumer(filter_subjects=["later.out", "later.tick"])
    first, second = await consumer.next(5), await consumer.next(5)
    assert (first.subject, first.payload, first.headers["A"]) == ("later.out", b"now", "b")
    assert first.headers["Nats-TTL"] in ("60s", "60", "1m0s")
    assert (second.subject, second.payload) == ("later.tick", b"tick")
    await stream.purge(subject="later.again")
    with pytest.raises(ConfigurationError, match="one of at"):
        await js.schedule("later.x", target="later.out")
    with pytest.raises(ConfigurationError, match="one of at"):
        await js.schedule("later.x", target="later.out", every=5, cron="@daily")
    with pytest.raises(JetStreamApiError, match="target is invalid"):
        await js.schedule("later.x", target="elsewhere", every=timedelta(minutes=1))
    await js.delete_stream("LATER")


async def test_what_is_no_answer_to_a_message_of_the_batch_is_passed_over(js: JetStream) -> None:
    batch = js.batch()
    batch.add("atomic.a", b"")
    batch._answer = asyncio.get_running_loop().create_future()
    batch._prefix = b"_INBOX.x."
    stray = [
        (MSG, b"_INBOX.x." + number, b"1", b"", b"", b"?") for number in (b"", b"x", b"1", b"-1")
    ]
    batch._receive(stray)
    assert not batch._answer.done()
    batch._receive([(MSG, b"_INBOX.x.0", b"1", b"", b"", b"?")])
    assert isinstance(batch._answer.exception(), ProtocolError)
    batch.discard()
