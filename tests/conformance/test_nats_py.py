"""nats-py, unmodified, does its daily work on our broker; each test runs on nats-server as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import nats
import nats.errors
import nats.js.api as js_api
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

import peers

pytestmark = pytest.mark.peer


@pytest.fixture(params=["nats-server", "headrace"])
def server(
    request: pytest.FixtureRequest,
    nats_server: Callable[..., peers.ServerProcess],
    headrace_server: Callable[..., peers.ServerProcess],
) -> peers.ServerProcess:
    return nats_server() if request.param == "nats-server" else headrace_server()


@pytest.fixture
async def client(server: peers.ServerProcess) -> AsyncIterator[Client]:
    connection = await nats.connect(server.url, allow_reconnect=False)
    yield connection
    await connection.close()


async def test_publishes_and_subscribes(client: Client) -> None:
    subscription = await client.subscribe("greet.*")
    await client.publish("greet.joe", b"hello", headers={"K": "v"})
    message = await subscription.next_msg(timeout=2)
    assert (message.subject, message.data, message.headers) == ("greet.joe", b"hello", {"K": "v"})


async def test_requests_and_is_told_when_nobody_listens(client: Client) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    await client.subscribe("shout", queue="workers", cb=answer)
    reply = await client.request("shout", b"hey", timeout=2)
    assert reply.data == b"HEY"
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("nobody", b"", timeout=2)


async def test_manages_streams(client: Client) -> None:
    js = client.jetstream()
    created = await js.add_stream(name="ORDERS", subjects=["orders.>"], max_msgs=100)
    assert created.config.max_msgs == 100
    updated = await js.update_stream(name="ORDERS", subjects=["orders.>"], max_msgs=50)
    assert updated.config.max_msgs == 50
    assert [info.config.name for info in await js.streams_info()] == ["ORDERS"]
    assert await js.find_stream_name_by_subject("orders.1") == "ORDERS"
    assert (await js.account_info()).streams == 1
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.stream_info("NOPE")
    assert await js.delete_stream("ORDERS")


async def test_publishes_into_streams_with_expectations(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    assert (await js.publish("orders.1", b"one", headers={"Nats-Msg-Id": "1"})).seq == 1
    again = await js.publish("orders.1", b"one", headers={"Nats-Msg-Id": "1"})
    assert (again.seq, again.duplicate) == (1, True)
    with pytest.raises(nats.js.errors.APIError) as refused:
        await js.publish("orders.1", headers={"Nats-Expected-Last-Sequence": "9"})
    assert refused.value.err_code == 10071
    with pytest.raises(nats.js.errors.NoStreamResponseError):
        await js.publish("elsewhere", b"")


async def test_publishes_thousands_without_waiting_for_each(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    acks = await asyncio.gather(*[await js.publish_async("orders.1", b"x") for _ in range(2000)])
    assert sorted(ack.seq for ack in acks) == list(range(1, 2001))


async def test_reads_gets_deletes_and_purges_messages(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(5):
        await js.publish(f"orders.{number % 2}", str(number).encode(), headers={"N": str(number)})
    message = await js.get_msg("ORDERS", 2)
    assert (message.data, message.headers) == (b"1", {"N": "1"})
    assert (await js.get_last_msg("ORDERS", "orders.0")).data == b"4"
    assert await js.delete_msg("ORDERS", 2)
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.get_msg("ORDERS", 2)
    assert await js.purge_stream("ORDERS", subject="orders.0")
    assert (await js.stream_info("ORDERS")).state.messages == 1


async def test_pulls_in_batches_and_acknowledges(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(10):
        await js.publish("orders.x", str(number).encode())
    subscription = await js.pull_subscribe("orders.>", "mill")
    messages = await subscription.fetch(6, timeout=2)
    assert [message.data for message in messages] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert messages[0].metadata.sequence.stream == 1
    assert messages[0].metadata.num_pending == 9
    for message in messages:
        await message.ack_sync(timeout=2)
    info = await subscription.consumer_info()
    assert info.ack_floor is not None
    assert (info.ack_floor.stream_seq, info.num_pending, info.num_ack_pending) == (6, 4, 0)
    assert len(await subscription.fetch(10, timeout=0.5)) == 4
    with pytest.raises(nats.errors.TimeoutError):
        await subscription.fetch(1, timeout=0.3)


async def test_redelivers_what_is_refused(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    await js.publish("orders.x", b"hot")
    subscription = await js.pull_subscribe("orders.>", "mill")
    (message,) = await subscription.fetch(1, timeout=2)
    await message.nak(delay=0.1)
    (message,) = await subscription.fetch(1, timeout=2)
    assert message.metadata.num_delivered == 2
    await message.in_progress()
    await message.term()
    await client.flush()
    with pytest.raises(nats.errors.TimeoutError):
        await subscription.fetch(1, timeout=0.3)


async def test_manages_consumers(client: Client) -> None:
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    config = js_api.ConsumerConfig(
        durable_name="mill",
        ack_policy=js_api.AckPolicy.EXPLICIT,
        ack_wait=5,
        filter_subjects=["orders.a", "orders.b"],
    )
    created = await js.add_consumer("ORDERS", config)
    assert created.config.ack_wait == 5
    assert created.config.filter_subjects == ["orders.a", "orders.b"]
    assert [info.name for info in await js.consumers_info("ORDERS")] == ["mill"]
    assert await js.delete_consumer("ORDERS", "mill")
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.consumer_info("ORDERS", "mill")


async def test_drains(client: Client) -> None:
    received = []

    async def note(message: Msg) -> None:
        received.append(message.data)

    await client.subscribe("foo", cb=note)
    for number in range(10):
        await client.publish("foo", str(number).encode())
    await client.drain()
    assert len(received) == 10
