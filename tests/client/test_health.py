"""Connections and consumes say whether they work, and if not, why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import chaos
import peers
from headrace import DeadLetter, Retry, sync
from headrace.client import Connection, JetStream, JetStreamMessage, Stream, connect
from headrace.errors import ConsumerNotFoundError, PullError
from waiting import until, until_pulling

pytestmark = pytest.mark.peer


def state_of(connection: Connection | sync.Connection) -> str:
    return connection.state  # a call: mypy takes no attribute to change by itself


QUICK: dict[str, Any] = {"reconnect_wait": 0.01, "reconnect_wait_max": 0.02}


async def test_a_connection_and_its_consume_are_well_until_the_server_is_away_and_say_since_when(
    reference_server: peers.ServerProcess, js: JetStream, stream: Stream
) -> None:
    await stream.create_consumer(durable_name="c")
    async with chaos.ChaosProxy(reference_server.host, reference_server.port) as proxy:
        async with connect(proxy.url, **QUICK) as connection:
            consumer = await connection.jetstream().consumer(stream.name, "c")
            async with consumer.consume(lambda message: message.ack()) as consumption:
                assert state_of(connection) == "connected"
                assert connection.health()
                assert consumption.health()
                assert str(consumption.health()) == "ok"
                await proxy.go_away()
                await until(lambda: state_of(connection) == "disconnected")
                for health in (connection.health(), consumption.health()):
                    assert not health
                    assert "disconnected from nats://127.0.0.1" in health.reason
                    assert " for 0." in health.reason
                await proxy.come_back()
                await until(lambda: connection.health() and consumption.health())
            assert not consumption.health()
            assert "has ended" in consumption.health().reason
        assert state_of(connection) == "closed"
        assert connection.health().reason == "the connection is closed"


async def test_a_consume_whose_consumer_is_deleted_says_so(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    consumption = consumer.consume(lambda message: message.ack())
    # A pull that came after the deletion would be answered by nobody, which takes two heartbeats to see.
    await until_pulling(consumer)
    await consumer.delete()
    with pytest.raises((PullError, ConsumerNotFoundError)):
        await consumption.wait()
    assert consumption.state == "failed"
    assert not consumption.health()
    assert "failed" in consumption.health().reason


async def test_a_consume_counts_what_fails_what_is_tried_again_and_what_is_put_elsewhere(
    js: JetStream, stream: Stream
) -> None:
    consumer = await stream.create_consumer(durable_name="c", filter_subject=f"{stream.name}.work")
    policy = DeadLetter(f"{stream.name}.dead", after=2, backoff=(0.01,))

    async def fail(message: JetStreamMessage) -> None:
        raise ValueError("no")

    async with consumer.consume(
        fail, on_failure=policy, on_error=lambda error: None
    ) as consumption:
        await js.publish(f"{stream.name}.work", b"x")
        await until(lambda: consumption.stats().dead_letters == 1)
        stats = consumption.stats()
    assert (stats.failures, stats.retries, stats.buffered) == (2, 1, 0)


@pytest.mark.parametrize("concurrency", [None, 3])
async def test_a_consume_counts_what_is_in_hand(
    js: JetStream, stream: Stream, concurrency: int | None
) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    go_on = asyncio.Event()

    async def wait(message: JetStreamMessage) -> None:
        await go_on.wait()
        message.ack()

    for _ in range(5):
        await js.publish(f"{stream.name}.a", b"x")
    async with consumer.consume(
        wait, concurrency=concurrency, max_messages=5, on_failure=Retry()
    ) as consumption:
        await until(lambda: consumption.stats().in_hand == (concurrency or 1))
        await until(lambda: consumption.stats().buffered > 0)
        go_on.set()
        await until(lambda: consumption.stats().in_hand == 0)


def test_blocking_ones_say_the_same(reference_server: peers.ServerProcess) -> None:
    with sync.connect(reference_server.url) as connection:
        js = connection.jetstream()
        stream = js.create_stream(name="HEALTH", subjects=["health.>"], storage="memory")
        try:
            with stream.create_consumer(durable_name="c").consume() as consumption:
                assert state_of(connection) == "connected"
                assert connection.health()
                assert consumption.health()
                assert consumption.stats().in_hand == 0
            assert consumption.state == "ended"
            assert not consumption.health()
        finally:
            stream.delete()
    assert state_of(connection) == "closed"
    assert not connection.health()
