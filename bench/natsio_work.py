"""The measured work, done through natsio as its documentation shows it; it needs Python 3.13.

Only the process that does the work imports this (``apart.ByName``): the benchmark runs on an older Python.
"""

from __future__ import annotations

import time

import natsio
import natsio.jetstream
from natsio.jetstream import AckPolicy, ConsumerConfig

import ourclient
from ourclient import SUBJECT


def _config(durable: str, max_ack_pending: int) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=durable, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=max_ack_pending
    )


def publish_awaited(url: str, messages: int, payload_bytes: int) -> float:
    """Messages per second, each acknowledged before the next one is sent."""

    async def work() -> float:
        async with await natsio.connect(url) as client:
            js = client.jetstream()
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            for _ in range(messages):
                await js.publish(SUBJECT, payload)
            return messages / (time.perf_counter() - started)

    return ourclient.run(work())


def request_latencies(url: str, subject: str, requests: int, payload_bytes: int) -> list[float]:
    """Seconds of each request, one after the other, to whoever answers on ``subject``."""
    latencies: list[float] = []

    async def work() -> float:
        async with await natsio.connect(url) as client:
            payload = b"x" * payload_bytes
            clock = time.perf_counter
            for _ in range(requests):
                before = clock()
                await client.request(subject, payload, timeout=5.0)
                latencies.append(clock() - before)
        return 0.0

    ourclient.run(work())
    return latencies


def take_single(url: str, stream: str, durable: str, messages: int) -> float:
    """Messages per second of ``await consumer.next()`` and ``await message.ack()``."""

    async def work() -> float:
        async with await natsio.connect(url) as client:
            js = client.jetstream()
            started = time.perf_counter()
            consumer = await (await js.stream(stream)).create_consumer(_config(durable, 1_000))
            for _ in range(messages):
                message = await consumer.next(timeout=10.0)
                await message.ack()
            await client.flush()
            return messages / (time.perf_counter() - started)

    return ourclient.run(work())


def pull(url: str, stream: str, durable: str, messages: int, batch: int) -> float:
    """Messages per second of ``fetch(batch)``, reading every payload, ``await message.ack()``."""

    async def work() -> float:
        async with await natsio.connect(url) as client:
            js = client.jetstream()
            started = time.perf_counter()
            consumer = await (await js.stream(stream)).create_consumer(_config(durable, 2 * batch))
            taken = size = 0
            while taken < messages:
                for message in await consumer.fetch(batch, timeout=10.0):
                    size += len(message.payload)
                    await message.ack()
                    taken += 1
            await client.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)

    return ourclient.run(work())


def consume(url: str, stream: str, durable: str, messages: int, kept_ready: int) -> float:
    """Messages per second of ``async for message in consumer.consume(…)``, ``await message.ack()``."""

    async def work() -> float:
        async with await natsio.connect(url) as client:
            js = client.jetstream()
            started = time.perf_counter()
            config = _config(durable, 2 * kept_ready)
            consumer = await (await js.stream(stream)).create_consumer(config)
            taken = size = 0
            async with consumer.consume(max_messages=kept_ready) as arriving:
                async for message in arriving:
                    size += len(message.payload)
                    await message.ack()
                    taken += 1
                    if taken == messages:
                        break
                await client.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)

    return ourclient.run(work())


def publish_windowed(url: str, messages: int, window: int, payload_bytes: int) -> float:
    """Messages per second through ``publish_async`` with as many pending as the window holds."""

    async def work() -> float:
        async with await natsio.connect(url) as client:
            # It gives up where the window stays full for longer: a slow disk is measured, not given up.
            js = client.jetstream(
                publish_async_max_pending=window, publish_async_stall_wait=ourclient.ACK_TIMEOUT
            )
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            for _ in range(messages):
                await js.publish_async(SUBJECT, payload)
            await js.publish_async_complete()
            return messages / (time.perf_counter() - started)

    return ourclient.run(work())


def publish_core(url: str, messages: int, payload_bytes: int) -> float:
    """Messages per second of ``await client.publish(…)``, until the server has read all of them."""

    async def work() -> float:
        async with await natsio.connect(url) as client:
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            for _ in range(messages):
                await client.publish(SUBJECT, payload)
            await client.flush()
            return messages / (time.perf_counter() - started)

    return ourclient.run(work())


def core_rounds(url: str, messages: int, at_once: int, payload_bytes: int) -> float:
    """Messages per second published and received by one client, so many at a time."""

    async def work() -> float:
        async with await natsio.connect(url) as client:
            payload = b"x" * payload_bytes
            arriving = client.subscribe("core.here")
            await client.flush()
            reader = aiter(arriving)
            size = 0
            started = time.perf_counter()
            for _ in range(messages // at_once):
                for _ in range(at_once):
                    await client.publish("core.here", payload)
                for _ in range(at_once):
                    size += len((await anext(reader)).payload)
            assert size == messages * payload_bytes, "every message came"
            return messages / (time.perf_counter() - started)

    return ourclient.run(work())
