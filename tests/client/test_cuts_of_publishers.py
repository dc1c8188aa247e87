"""A connection lost at each read and each write in turn: what is called stored is stored, and in order."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest

from cutting import Cutter, everywhere
from headrace.client import BatchRefusedError, JetStream, PublishFailure, Stream
from headrace.embedded import Broker
from headrace.errors import HeadraceError
from waiting import until

pytestmark = pytest.mark.usefixtures("no_leaks")

COUNT = 30
SUBJECTS = 3
_numbers = itertools.count(1)


async def make_stream(calm: JetStream) -> Stream:
    name = f"S{next(_numbers)}"
    return await calm.create_stream(
        name=name,
        subjects=[f"{name}.>"],
        storage="memory",
        allow_direct=True,
        allow_batched=True,
        allow_atomic=True,
    )


async def stored(stream: Stream) -> dict[str, list[int]]:
    """The numbers in a stream, by subject."""
    found = defaultdict(list)
    async for message in stream.scan():
        found[message.subject].append(int(message.payload))
    return found


PUBLISHERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "fast": {"fast": True},
    "deduplicated": {"deduplicate": True},
    "fast and deduplicated": {"fast": True, "deduplicate": True},
    "without retries": {"retries": 0},
    "fast without retries": {"fast": True, "retries": 0},
}


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("kind", PUBLISHERS)
async def test_a_publisher_tells_what_became_of_each_message_wherever_a_connection_is_lost(
    quick_broker: Broker, calm: JetStream, kind: str, gap: int
) -> None:
    options = PUBLISHERS[kind]

    async def publish(cutter: Cutter) -> None:
        stream = await make_stream(calm)
        failures: list[PublishFailure] = []
        async with cutter.connect(quick_broker.client_url) as connection:
            cutter.is_armed = True
            publisher = connection.jetstream().publisher(
                window=7, on_failure=failures.append, **options
            )
            async with publisher:
                for number in range(COUNT):
                    await publisher.send(f"{stream.name}.{number % SUBJECTS}", b"%d" % number)
                await publisher.flush()
            cutter.is_armed = False
        assert publisher.sent == COUNT == publisher.acked + publisher.failed
        failed = {failure.index for failure in failures}
        assert len(failed) == len(failures) == publisher.failed
        found = await stored(stream)
        for rest in range(SUBJECTS):
            numbers, sent = found[f"{stream.name}.{rest}"], range(rest, COUNT, SUBJECTS)
            first = list(dict.fromkeys(numbers))  # without what was stored again
            assert first == sorted(first)
            assert set(sent) - failed <= set(first)
            if "deduplicate" in options:
                assert numbers == list(sent)
            if options.get("retries") == 0:
                assert numbers == first
        await stream.delete()

    assert await everywhere(publish, gap=gap) > 30


@pytest.mark.parametrize("kind", PUBLISHERS)
async def test_what_a_publisher_without_a_link_takes_is_sent_before_what_follows(
    quick_broker: Broker, calm: JetStream, kind: str
) -> None:
    stream = await make_stream(calm)
    cutter = Cutter(0, at=1)
    async with cutter.connect(quick_broker.client_url) as connection:
        cutter.may_return.clear()
        cutter.is_armed = True
        connection.publish_nowait("anything")
        await until(lambda: not connection.is_connected)
        async with connection.jetstream().publisher(**PUBLISHERS[kind]) as publisher:
            for number in range(5):
                await publisher.send(f"{stream.name}.0", b"%d" % number)
            cutter.may_return.set()
            await until(lambda: connection.is_connected)
            for number in range(5, 10):
                await publisher.send(f"{stream.name}.0", b"%d" % number)
            await publisher.flush()
    assert (await stored(stream))[f"{stream.name}.0"] == list(range(10))


async def test_an_atomic_batch_is_stored_whole_or_not_at_all_wherever_a_connection_is_lost(
    quick_broker: Broker, calm: JetStream
) -> None:
    size = 9

    async def publish(cutter: Cutter) -> None:
        stream, confirmed, unknown = await make_stream(calm), 0, 0
        async with cutter.connect(quick_broker.client_url) as connection:
            cutter.is_armed = True
            for _ in range(4):
                batch = connection.jetstream().batch()
                for number in range(size):
                    batch.add(f"{stream.name}.{number % SUBJECTS}", bytes(100))
                try:
                    ack = await batch.commit()
                except HeadraceError as error:
                    assert not isinstance(error, BatchRefusedError)
                    unknown += 1  # it may be stored, or be so in a moment
                else:
                    confirmed += 1
                    assert (ack.count, ack.seq % size) == (size, 0)
            cutter.is_armed = False
        batches, rest = divmod((await stream.info()).state.messages, size)
        assert confirmed <= batches <= confirmed + unknown
        assert rest == 0
        await stream.delete()

    assert await everywhere(publish) > 20


async def test_an_object_is_read_and_replaced_as_a_whole_wherever_a_connection_is_lost(
    quick_broker: Broker, calm: JetStream
) -> None:
    old, new = b"old" * 500, b"new" * 700

    async def replace(cutter: Cutter) -> None:
        bucket = f"O{next(_numbers)}"
        store = await calm.create_object_store(bucket=bucket, storage="memory")
        await store.put("a", old, chunk_size=300)
        allowed = {new}
        async with cutter.connect(quick_broker.client_url) as connection:
            mine = await connection.jetstream().object_store(bucket)
            cutter.is_armed = True
            try:
                assert await mine.get("a") == old
                await mine.put("a", new, chunk_size=300)
            except HeadraceError:
                allowed = {old, new}
            cutter.is_armed = False
        assert await store.get("a") in allowed
        await calm.delete_object_store(bucket)

    assert await everywhere(replace) > 30
