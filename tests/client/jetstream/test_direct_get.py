"""Reading stored messages many at once, without a consumer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from headrace.client import JetStream, Stream
from headrace.client.jetstream.direct_get import BATCH_BYTES
from headrace.errors import (
    ConfigurationError,
    DisconnectedError,
    JetStreamApiError,
    NoRespondersError,
    RequestTimeoutError,
)

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
async def full(js: JetStream, stream: Stream) -> Stream:
    """Messages 1 to 100 on ten subjects, 50 deleted."""
    await stream.update(allow_direct=True)
    async with js.publisher() as publisher:
        for number in range(1, 101):
            await publisher.send(f"{stream.name}.{number % 10}", b"%d" % number)
    await stream.delete_message(50)
    return stream


async def test_a_batch_says_how_much_is_left(full: Stream) -> None:
    batch = await full.get_batch(10)
    assert [message.sequence for message in batch.messages] == list(range(1, 11))
    assert (batch.pending, batch.last_sequence) == (89, 10)
    first = batch.messages[0]
    assert (first.subject, first.payload, list(first.headers)) == (f"{full.name}.1", b"1", [])
    assert abs(first.timestamp_ns / 1e9 - datetime.now(UTC).timestamp()) < 60
    batch = await full.get_batch(10, sequence=batch.last_sequence + 1, subject=f"{full.name}.3")
    assert [message.sequence for message in batch.messages] == list(range(13, 101, 10))
    assert batch.pending == 0
    batch = await full.get_batch(10, sequence=101)
    assert (batch.messages, batch.pending, batch.last_sequence) == ([], 0, 0)
    batch = await full.get_batch(10, max_bytes=1)
    assert len(batch.messages) == 1
    at = datetime.fromtimestamp(first.timestamp_ns / 1e9 - 1, UTC)
    assert len((await full.get_batch(3, start_time=at)).messages) == 3
    assert (await full.get_next_message(f"{full.name}.*", start_time=at)).sequence == 1
    with pytest.raises(ConfigurationError, match="max_messages is 0"):
        await full.get_batch(0)


async def test_a_scan_reads_a_range_in_pieces(
    full: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.jetstream.direct_get.SCAN_MESSAGES", 7)
    everything = [message.sequence async for message in full.scan()]
    assert everything == [n for n in range(1, 101) if n != 50]
    assert [m.sequence async for m in full.scan(first=48, last=52)] == [48, 49, 51, 52]
    some = [m.sequence async for m in full.scan(subject=f"{full.name}.0", first=20, last=75)]
    assert some == [20, 30, 40, 60, 70]
    assert [m async for m in full.scan(first=101)] == []
    assert [m async for m in full.scan(first=5, last=4)] == []
    assert [m.sequence async for m in full.scan(first=50, last=50)] == []


async def test_the_newest_message_of_each_subject(
    full: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.jetstream.direct_get.LAST_MESSAGES", 3)
    newest = await full.get_last_messages(f"{full.name}.*")
    assert [message.sequence for message in newest] == list(range(91, 101))
    two = await full.get_last_messages(f"{full.name}.1", f"{full.name}.2")
    assert [message.sequence for message in two] == [91, 92]
    then = await full.get_last_messages(">", up_to_sequence=15)
    assert [message.sequence for message in then] == list(range(6, 16))
    assert len(await full.get_last_messages(">", up_to_time=datetime.now(UTC))) == 10
    assert await full.get_last_messages("nothing.*") == []
    with pytest.raises(ConfigurationError, match="needs a subject"):
        await full.get_last_messages()
    with pytest.raises(JetStreamApiError, match="Bad Request"):
        await full.get_last_messages(">", up_to_sequence=5, up_to_time=datetime.now(UTC))


async def test_too_many_subjects_are_refused(js: JetStream, stream: Stream) -> None:
    await stream.update(allow_direct=True)
    async with js.publisher() as publisher:
        await publisher.send_many((f"{stream.name}.{n}", b"") for n in range(1025))
    with pytest.raises(JetStreamApiError, match="Too Many Results"):
        await stream.get_last_messages(">")


async def test_a_stream_that_does_not_answer_directly(js: JetStream, stream: Stream) -> None:
    with pytest.raises(NoRespondersError, match="has not allow_direct"):
        await stream.get_batch()


async def test_answers_that_do_not_come(js: JetStream, full: Stream) -> None:
    silent = js.connection.jetstream(prefix="silent", timeout=0.05)
    heard = await js.connection.subscribe("silent.>")
    await js.connection.flush()
    lonely = Stream(silent._api, full.name)
    with pytest.raises(RequestTimeoutError, match=r"silent for 0\.05 s"):
        await lonely.get_batch()
    await heard.unsubscribe()
    reading = asyncio.ensure_future(full.get_batch(100, max_bytes=BATCH_BYTES))
    await asyncio.sleep(0)
    link = js.connection._session.link
    assert link is not None
    link.transport.abort()
    with pytest.raises(DisconnectedError):
        await reading
    await js.connection.flush()
