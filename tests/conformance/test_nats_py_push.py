"""Push and ordered consumers of nats-py, unmodified, on our broker and on nats-server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType

import peers
from headrace.broker.server import Broker
from waiting import until

BOTH = pytest.mark.parametrize("storage", [StorageType.FILE, StorageType.MEMORY])


class Received:
    """What a callback got; ``until`` waits for a number of messages."""

    def __init__(self) -> None:
        self.messages: list[Msg] = []
        self._more = asyncio.Event()

    async def take(self, message: Msg) -> None:
        self.messages.append(message)
        self._more.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.messages) < count:
                self._more.clear()
                await self._more.wait()


async def publish(connection: Client, count: int, payload: bytes = b"x") -> None:
    js = connection.jetstream()
    acks = [await js.publish_async(f"p.{number % 3}", payload) for number in range(count)]
    await asyncio.gather(*acks)


@BOTH
async def test_subscriptions_push_and_redeliver(connection: Client, storage: StorageType) -> None:
    js = connection.jetstream()
    await js.add_stream(name="P", subjects=["p.>"], storage=storage)
    await publish(connection, 3)
    subscription = await js.subscribe("p.>", durable="mill", manual_ack=True)
    messages = [await subscription.next_msg(timeout=2) for _ in range(3)]
    assert [message.metadata.sequence.stream for message in messages] == [1, 2, 3]
    assert messages[0].metadata.num_pending == 2
    await messages[0].ack_sync(timeout=2)
    await messages[1].nak()
    again = await subscription.next_msg(timeout=2)
    assert (again.metadata.sequence.stream, again.metadata.num_delivered) == (2, 2)
    info = await subscription.consumer_info()
    assert (info.push_bound, info.num_ack_pending, info.num_redelivered) == (True, 2, 1)
    with pytest.raises(nats.js.errors.Error):
        await js.subscribe("p.>", durable="mill")  # nats-py says that somebody is there already
    await subscription.unsubscribe()


@BOTH
async def test_members_of_a_queue_share_the_messages(
    connection: Client, storage: StorageType
) -> None:
    js = connection.jetstream()
    await js.add_stream(name="P", subjects=["p.>"], storage=storage)
    first, second = Received(), Received()
    await js.subscribe("p.>", queue="mills", cb=first.take)
    await js.subscribe("p.>", queue="mills", cb=second.take)
    await publish(connection, 200)
    await until(lambda: len(first.messages) + len(second.messages) >= 200, within=5)
    sequences = [m.metadata.sequence.stream for m in first.messages + second.messages]
    assert sorted(sequences) == list(range(1, 201))
    assert first.messages
    assert second.messages

    async def done() -> bool:
        return not (await js.consumer_info("P", "mills")).num_ack_pending

    await until(done, "nats-server has not taken all acknowledgements")
    info = await js.consumer_info("P", "mills")
    assert info.config.deliver_group == "mills"


@BOTH
async def test_ordered_consumers_read_in_order(connection: Client, storage: StorageType) -> None:
    js = connection.jetstream()
    await js.add_stream(name="P", subjects=["p.>"], storage=storage)
    await publish(connection, 600, b"x" * 10_000)  # three windows of flow control
    subscription = await js.subscribe("p.>", ordered_consumer=True)
    messages = [await subscription.next_msg(timeout=5) for _ in range(600)]
    assert [message.metadata.sequence.stream for message in messages] == list(range(1, 601))
    info = await subscription.consumer_info()
    assert (info.config.flow_control, info.config.ack_policy) == (True, AckPolicy.NONE)
    await publish(connection, 1)
    assert (await subscription.next_msg(timeout=2)).metadata.sequence.stream == 601
    await subscription.unsubscribe()


async def test_an_ordered_consumer_begins_anew_when_its_consumer_is_gone(
    connection: Client,
) -> None:
    js = connection.jetstream()
    await js.add_stream(name="P", subjects=["p.>"])
    await publish(connection, 5)
    received = Received()
    await js.subscribe("p.>", ordered_consumer=True, cb=received.take, idle_heartbeat=0.1)
    await received.until(5)
    (gone,) = await js.consumers_info("P")
    await js.delete_consumer("P", gone.name)
    await publish(connection, 5)
    await received.until(10)
    assert [m.metadata.sequence.stream for m in received.messages] == list(range(1, 11))


async def test_flow_control_with_a_callback_that_takes_its_time(connection: Client) -> None:
    js = connection.jetstream()
    await js.add_stream(name="P", subjects=["p.>"])
    await publish(connection, 100, b"x" * 100_000)
    received = Received()

    async def slow(message: Msg) -> None:
        await asyncio.sleep(0.002)
        await received.take(message)

    config = ConsumerConfig(flow_control=True, idle_heartbeat=0.2, ack_policy=AckPolicy.NONE)
    await js.subscribe("p.>", cb=slow, config=config)
    await received.until(100)
    assert [m.metadata.sequence.stream for m in received.messages] == list(range(1, 101))


async def test_an_ephemeral_goes_with_its_subscription(connection: Client) -> None:
    js = connection.jetstream()
    await js.add_stream(name="P", subjects=["p.>"])
    brief = ConsumerConfig(inactive_threshold=0.2)
    subscription = await js.subscribe("p.>", config=brief, deliver_policy=DeliverPolicy.NEW)
    info = await subscription.consumer_info()
    url = connection.connected_url
    assert url is not None
    other = await nats.connect(str(url.geturl()))
    brief = ConsumerConfig(inactive_threshold=0.2)
    await other.jetstream().subscribe("p.>", config=brief)
    assert len(await js.consumers_info("P")) == 2
    await other.close()  # without a word about its consumer

    async def fewer() -> list[Any]:
        found = await js.consumers_info("P")
        return found if len(found) < 2 else []

    left = await until(fewer, "the ephemeral one stays")
    assert [consumer.name for consumer in left] == [info.name]


@pytest.mark.parametrize("storage", [StorageType.FILE])
async def test_subscriptions_of_all_kinds_live_through_a_restart(
    tmp_path: Path, storage: StorageType
) -> None:
    port = peers.free_port()
    settings: dict[str, Any] = {"store_dir": tmp_path, "port": port}
    durable, ordered = Received(), Received()
    async with Broker(**settings):
        client = await nats.connect(f"nats://127.0.0.1:{port}", reconnect_time_wait=0.05)
        publisher = await nats.connect(f"nats://127.0.0.1:{port}", reconnect_time_wait=0.05)
        js = client.jetstream()
        await js.add_stream(name="P", subjects=["p.>"], storage=storage)
        await publish(publisher, 5)
        await js.subscribe("p.>", durable="mill", cb=durable.take)
        await js.subscribe("p.>", ordered_consumer=True, cb=ordered.take, idle_heartbeat=0.1)
        await durable.until(5)
        await ordered.until(5)
        await client.flush()
    async with Broker(**settings):
        await publisher.flush(timeout=5)
        await until(lambda: not (not client.is_connected or not publisher.is_connected), within=5)
        await publish(publisher, 5)
        await durable.until(10)
        await ordered.until(10)
        assert [m.metadata.sequence.stream for m in ordered.messages] == list(range(1, 11))
        assert {m.metadata.sequence.stream for m in durable.messages} == set(range(1, 11))
        await client.close()
        await publisher.close()
