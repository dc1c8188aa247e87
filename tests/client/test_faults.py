"""Connections cut at any moment, calls cancelled at any await: nothing is lost silently, nothing left."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

import chaos
import peers
from headrace.client import Connection, PublishFailure, Stream, connect
from headrace.client.events import Reconnected
from headrace.embedded import Broker
from headrace.errors import ConnectionClosedError, HeadraceError
from portions import portion
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]

DISCONNECTS = portion(60, 25)
CANCELLATIONS = int(os.environ.get("HEADRACE_CANCELLATIONS", str(portion(1500, 600))))
"""``make faults`` cancels 10,000."""


async def restored(connection: Connection, count: int) -> None:
    while connection.reconnects < count:
        await asyncio.sleep(0.002)


async def test_every_publish_ends_in_an_ack_or_an_error_over_many_resets(
    reference_server: peers.ServerProcess,
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
        stream = await js.create_stream(name="RESETS", subjects=["resets"], storage="memory")
        over = asyncio.Event()

        async def cut() -> None:
            for number in range(1, DISCONNECTS + 1):
                await asyncio.sleep(source.uniform(0, 0.02))
                proxy.reset()
                await restored(connection, number)
            over.set()

        cutting = asyncio.create_task(cut())
        async with js.publisher(
            window=300, retries=1_000, deduplicate=True, on_failure=failures.append
        ) as publisher:
            while not over.is_set():
                await publisher.send("resets", b"%d" % publisher.sent)
                if publisher.sent % 50 == 0:
                    await asyncio.sleep(0)
            await cutting
            await asyncio.wait_for(publisher.flush(), 20)
        assert publisher.sent == publisher.acked
        assert failures == []
        assert (await stream.info()).state.messages == publisher.sent
        consumer = await stream.create_consumer(durable_name="c", max_ack_pending=-1)
        seen: set[int] = set()
        while batch := await consumer.fetch(5_000, no_wait=True):
            seen.update(int(payload) for payload in batch.payloads)
        assert seen == set(range(publisher.sent))
        await stream.delete()


async def test_a_consume_gets_everything_over_many_resets(
    reference_server: peers.ServerProcess,
) -> None:
    source = random.Random(2)
    async with (
        chaos.ChaosProxy(
            reference_server.host, reference_server.port, reference_server.scheme
        ) as proxy,
        connect(proxy.url, reconnect_wait=0.005, reconnect_wait_max=0.01) as connection,
        connect(reference_server.url) as steady,
    ):
        js = steady.jetstream()
        stream = await js.create_stream(name="CUTS", subjects=["cuts"], storage="memory")
        await stream.create_consumer(durable_name="c", ack_wait=0.5, max_ack_pending=-1)
        async with js.publisher() as publisher:
            await publisher.send_many(("cuts", b"%d" % number) for number in range(20_000))
        consumer = await connection.jetstream().consumer("CUTS", "c")
        seen: set[int] = set()
        async with consumer.consume(on_error=lambda error: None) as messages:
            async for message in messages:
                seen.add(int(message.payload))
                message.ack()
                if len(seen) % 500 == 0 and source.random() < 0.5:
                    proxy.reset()
                if len(seen) == 20_000:
                    break
        assert connection.reconnects >= 5
        await stream.delete()


async def test_a_black_hole_is_noticed_by_pings(reference_server: peers.ServerProcess) -> None:
    back = asyncio.Event()
    async with (
        chaos.ChaosProxy(
            reference_server.host, reference_server.port, reference_server.scheme
        ) as proxy,
        connect(
            proxy.url,
            ping_interval=0.05,
            reconnect_wait=0.01,
            on_event=lambda event: back.set() if isinstance(event, Reconnected) else None,
        ) as connection,
    ):
        subscription = await connection.subscribe("through")
        await connection.flush()
        proxy.swallow()
        await asyncio.wait_for(back.wait(), 5)
        await connection.publish("through", b"again")
        assert (await subscription.next(2)).payload == b"again"


async def test_cancelled_calls_leave_a_usable_connection(
    connection: Connection, stream: Stream
) -> None:
    await cancel_calls(connection, stream, CANCELLATIONS)


async def test_cancelled_calls_leave_a_usable_connection_without_a_socket() -> None:
    async with Broker(port=-1) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="T", subjects=["T.>"], storage="memory")
        await cancel_calls(connection, stream, CANCELLATIONS)


async def cancel_calls(connection: Connection, stream: Stream, count: int) -> None:
    """Make so many calls, cancel each at a random await, and see that everything still works."""
    js = connection.jetstream()
    source = random.Random(3)
    consumer = await stream.create_consumer(durable_name="c", ack_wait=1, max_ack_pending=-1)
    subscription = await connection.subscribe("some")
    subject = f"{stream.name}.a"

    async def windowed() -> None:
        async with js.publisher(window=5, on_failure=lambda failure: None) as publisher:
            for _ in range(20):
                await publisher.send(subject)

    async def consumed() -> None:
        async with consumer.consume(max_messages=3) as messages:
            async for message in messages:
                message.ack()

    calls = [
        lambda: js.publish(subject, b"x"),
        lambda: consumer.fetch(3, max_wait=1),
        lambda: consumer.next(1),
        lambda: consumer.info(),
        lambda: connection.flush(),
        lambda: connection.request("nobody", timeout=1),
        lambda: subscription.next(1),
        windowed,
        consumed,
    ]
    for _ in range(count):
        task = asyncio.ensure_future(source.choice(calls)())
        for _ in range(source.randrange(6)):
            await asyncio.sleep(0)
        if source.random() < 0.1:
            await asyncio.sleep(source.uniform(0, 0.003))
        task.cancel()
        try:
            await task
        except (asyncio.CancelledError, HeadraceError):
            pass
    await connection.flush()
    session = connection._session
    assert len(session.requests) == 0
    # Left are: requests, our subscription, and what is kept for the next fetch.
    await until(
        lambda: len(session.routes.by_sid) <= 2 + len(session.inboxes) and not session.observers,
        "something is left of what was cancelled",
    )
    await connection.publish("some", b"here")
    assert (await subscription.next(2)).payload == b"here"
    await stream.purge()
    await js.publish(subject, b"last")
    assert (await consumer.fetch(1, max_wait=3)).payloads == [b"last"]


async def test_connecting_can_be_cancelled_at_any_moment(
    reference_server: peers.ServerProcess,
) -> None:
    source = random.Random(4)
    for _ in range(100):
        connecting = asyncio.ensure_future(_connected(reference_server.url))
        await asyncio.sleep(source.uniform(0, 0.002))
        connecting.cancel()
        try:
            await (await connecting).close()
        except (asyncio.CancelledError, ConnectionClosedError):
            pass


async def _connected(url: str) -> Connection:
    return await connect(url)
