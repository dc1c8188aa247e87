"""nats-py, unmodified, with sources and mirrors of our broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import (
    DiscardPolicy,
    RetentionPolicy,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from nats.js.errors import BadRequestError

from headrace.broker import Broker
from waiting import until


@asynccontextmanager
async def streams(broker: Broker) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(broker.client_url, allow_reconnect=False)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def test_a_mirrored_bucket_answers_for_the_keys_of_another() -> None:
    async with Broker() as broker, streams(broker) as js:
        bucket = await js.create_key_value(bucket="B", history=5)
        await bucket.put("a", b"1")
        rule = SubjectTransform(src="$KV.B.>", dest="$KV.M.>")
        await js.add_stream(
            StreamConfig(
                name="KV_M",
                mirror=StreamSource(name="KV_B", subject_transforms=[rule]),
                max_msgs_per_subject=5,
                allow_rollup_hdrs=True,
                deny_delete=True,
                allow_direct=True,
                discard=DiscardPolicy.NEW,
            )
        )
        revision = await bucket.put("a", b"2")
        await bucket.put("b", b"1")
        await bucket.purge("b")

        async def has_all() -> bool:
            info = await js.stream_info("KV_M")
            assert info.mirror is not None
            return info.state.last_seq == 4 and info.mirror.lag == 0

        await until(has_all)
        mirror = await js.key_value("M")
        entry = await mirror.get("a")
        assert (entry.value, entry.revision) == (b"2", revision)
        assert await mirror.keys() == ["a"]
        assert [entry.value for entry in await mirror.history("a")] == [b"1", b"2"]


async def test_a_work_queue_of_partitions_is_fed_by_a_stream_and_never_overflows() -> None:
    async with Broker() as broker, streams(broker) as js:
        await js.add_stream(name="ORDERS", subjects=["orders.*"])
        rule = SubjectTransform(src="orders.*", dest="{{partition(2,1)}}.orders.{{wildcard(1)}}")
        await js.add_stream(
            StreamConfig(
                name="WORK",
                sources=[StreamSource(name="ORDERS", subject_transforms=[rule])],
                retention=RetentionPolicy.WORK_QUEUE,
                discard=DiscardPolicy.NEW,
                max_msgs=10,
            )
        )
        workers = [
            await js.pull_subscribe(f"{n}.>", durable=f"w{n}", stream="WORK") for n in range(2)
        ]
        for number in range(100):
            await js.publish(f"orders.{number % 9}", b"%d" % number)

        async def work(number: int) -> list[int]:
            seen: list[int] = []
            while True:
                try:
                    messages = await workers[number].fetch(7, timeout=0.5)
                except nats.errors.TimeoutError:
                    return seen
                for message in messages:
                    assert message.subject.startswith(f"{number}.orders.")
                    seen.append(int(message.data))
                    await message.ack()

        lists = await asyncio.gather(work(0), work(1))
        assert all(seen == sorted(seen) for seen in lists)
        assert sorted(lists[0] + lists[1]) == list(range(100))
        info = await js.stream_info("WORK")
        assert info.sources is not None
        assert (info.state.messages, info.sources[0].lag) == (0, 0)


async def test_what_can_not_be_copied_is_refused_in_words() -> None:
    async with Broker() as broker, streams(broker) as js:
        with pytest.raises(BadRequestError, match="duplicate source configuration detected"):
            await js.add_stream(
                StreamConfig(name="T", sources=[StreamSource(name="S"), StreamSource(name="S")])
            )
