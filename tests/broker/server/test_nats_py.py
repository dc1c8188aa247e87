"""nats-py, unmodified, against our broker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from headrace.broker import Broker
from headrace.broker.server import User


@asynccontextmanager
async def connected(broker: Broker, **options: Any) -> AsyncIterator[Client]:
    client = await nats.connect(broker.client_url, allow_reconnect=False, **options)
    try:
        yield client
    finally:
        await client.close()


async def test_publish_and_subscribe() -> None:
    async with Broker() as broker, connected(broker) as client:
        subscription = await client.subscribe("orders.*")
        await client.publish("orders.new", b"hello", headers={"A": "b"})
        message = await subscription.next_msg(timeout=5)
        assert (message.subject, message.data, message.headers) == (
            "orders.new",
            b"hello",
            {"A": "b"},
        )


async def test_requests_are_answered_or_refused_at_once() -> None:
    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    async with Broker() as broker, connected(broker) as service, connected(broker) as client:
        await service.subscribe("upper", cb=answer)
        await service.flush()
        replies = await asyncio.gather(
            *(client.request("upper", b"x%d" % number, timeout=5) for number in range(50))
        )
        assert [reply.data for reply in replies] == [b"X%d" % number for number in range(50)]
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("nobody", b"", timeout=5)


async def test_queue_groups_share_the_work() -> None:
    counts = [0, 0, 0]

    def counting(index: int) -> Callable[[Msg], Awaitable[None]]:
        async def count(message: Msg) -> None:
            counts[index] += 1

        return count

    async with Broker() as broker, connected(broker) as client:
        for index in range(3):
            await client.subscribe("jobs", queue="workers", cb=counting(index))
        for _ in range(300):
            await client.publish("jobs", b"")
        await client.flush()
        await asyncio.sleep(0)
    assert sum(counts) == 300
    assert min(counts) > 30


async def test_drain_delivers_what_is_on_its_way() -> None:
    got: list[bytes] = []

    async def take(message: Msg) -> None:
        got.append(message.data)

    async with Broker() as broker:
        client = await nats.connect(broker.client_url)
        await client.subscribe("a", cb=take)
        for number in range(500):
            await client.publish("a", b"%d" % number)
        await client.drain()
        assert got == [b"%d" % number for number in range(500)]


async def test_unsubscribing_after_some_messages() -> None:
    async with Broker() as broker, connected(broker) as client:
        subscription = await client.subscribe("a")
        await subscription.unsubscribe(limit=2)
        for _ in range(3):
            await client.publish("a", b"")
        await client.flush()
        assert subscription.delivered <= 2
        assert broker.hub.router.subscriptions == 0


async def test_too_large_a_payload_is_refused() -> None:
    async with Broker(max_payload=100) as broker, connected(broker) as client:
        assert client.max_payload == 100
        with pytest.raises(nats.errors.MaxPayloadError):
            await client.publish("a", bytes(101))


@pytest.mark.parametrize(
    ("settings", "right", "wrong"),
    [
        ({"token": "t"}, {"token": "t"}, {"token": "x"}),
        (
            {"user": "u", "password": "p"},
            {"user": "u", "password": "p"},
            {"user": "u", "password": "x"},
        ),
        (
            {"users": [User("u", "p"), User("v", "q")]},
            {"user": "v", "password": "q"},
            {"user": "v", "password": "p"},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_credentials(
    settings: dict[str, Any], right: dict[str, str], wrong: dict[str, str]
) -> None:
    async def quiet(error: Exception) -> None:
        assert "Authorization Violation" in str(error)

    async with Broker(**settings) as broker:
        async with connected(broker, **right) as client:
            await client.flush()
        for refused in (wrong, {}):
            with pytest.raises(Exception, match="Authorization Violation"):
                async with connected(broker, error_cb=quiet, **refused):
                    pass
    gc.collect()  # nats-py leaves the socket of a refused connection to the collector


async def test_streams_work_in_memory() -> None:
    async with Broker() as broker, connected(broker) as client:
        streams = client.jetstream()
        await streams.add_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(100):
            ack = await streams.publish(f"orders.{number}", b"%d" % number)
            assert ack.seq == number + 1
        subscription = await streams.pull_subscribe("orders.>", durable="worker")
        messages = await subscription.fetch(100, timeout=5)
        for message in messages:
            await message.ack()
        assert [message.data for message in messages] == [b"%d" % n for n in range(100)]


async def test_a_client_survives_the_broker_restarting_on_its_port() -> None:
    reconnected = asyncio.Event()

    async def on_reconnect() -> None:
        reconnected.set()

    async def quiet(error: Exception) -> None:
        pass

    async with Broker() as broker:
        client = await nats.connect(
            broker.client_url,
            reconnected_cb=on_reconnect,
            error_cb=quiet,
            reconnect_time_wait=0.02,
            max_reconnect_attempts=-1,
        )
        subscription = await client.subscribe("a")
    async with Broker(port=broker.port) as again:
        async with asyncio.timeout(10):
            await reconnected.wait()
        await client.publish("a", b"back")
        assert (await subscription.next_msg(timeout=5)).data == b"back"
        await client.close()
        assert again.port == broker.port
