"""The measured work, done through nats-py as its documentation shows it."""

from __future__ import annotations

import asyncio
import time

import nats
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig

import ourclient
from ourclient import SUBJECT


def fetch(url: str, stream: str, durable: str, messages: int, batch: int) -> float:
    """Messages per second of ``fetch(batch)``, reading every payload, ``await message.ack()``."""

    async def work() -> float:
        connection = await nats.connect(url)
        try:
            js = connection.jetstream()
            subscription = await js.pull_subscribe_bind(durable, stream)
            taken = size = 0
            started = time.perf_counter()
            while taken < messages:
                for message in await subscription.fetch(batch, timeout=10):
                    size += len(message.data)
                    await message.ack()
                    taken += 1
            await connection.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)
        finally:
            await connection.close()

    return ourclient.run(work())


def pull(url: str, stream: str, durable: str, messages: int, batch: int) -> float:
    """The same, with a consumer that it makes itself."""

    async def prepare() -> float:
        connection = await nats.connect(url)
        try:
            js = connection.jetstream()
            config = ConsumerConfig(durable_name=durable, max_ack_pending=2 * batch)
            await js.add_consumer(stream, config)
            return 0.0
        finally:
            await connection.close()

    ourclient.run(prepare())
    return fetch(url, stream, durable, messages, batch)


def push(url: str, stream: str, durable: str, messages: int, pending: int) -> float:
    """Messages per second of its continuous subscription: pushed, to a callback that acknowledges."""

    async def work() -> float:
        connection = await nats.connect(url)
        try:
            js = connection.jetstream()
            done = asyncio.get_running_loop().create_future()
            taken = size = 0

            async def take(message: Msg) -> None:
                nonlocal taken, size
                size += len(message.data)
                await message.ack()
                taken += 1
                if taken == messages:
                    done.set_result(None)

            config = ConsumerConfig(max_ack_pending=pending)
            started = time.perf_counter()
            await js.subscribe(
                "bench.>", stream=stream, durable=durable, cb=take, manual_ack=True, config=config
            )
            await done
            await connection.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)
        finally:
            await connection.close()

    return ourclient.run(work())


def publish_awaited(url: str, messages: int, payload_bytes: int) -> float:
    """Messages per second, each acknowledged before the next one is sent."""

    async def work() -> float:
        connection = await nats.connect(url)
        try:
            js = connection.jetstream()
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            for _ in range(messages):
                await js.publish(SUBJECT, payload)
            return messages / (time.perf_counter() - started)
        finally:
            await connection.close()

    return ourclient.run(work())


def publish_windowed(url: str, messages: int, window: int, payload_bytes: int) -> float:
    """Messages per second through ``publish_async`` with as many pending as the window holds."""

    async def work() -> float:
        connection = await nats.connect(url)
        try:
            js = connection.jetstream(publish_async_max_pending=window)
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            for _ in range(messages):
                await js.publish_async(SUBJECT, payload)
            await js.publish_async_completed()
            return messages / (time.perf_counter() - started)
        finally:
            await connection.close()

    return ourclient.run(work())


def request_latencies(url: str, subject: str, requests: int, payload_bytes: int) -> list[float]:
    """Seconds of each request, one after the other, to whoever answers on ``subject``."""
    latencies: list[float] = []

    async def work() -> float:
        connection = await nats.connect(url)
        try:
            payload = b"x" * payload_bytes
            clock = time.perf_counter
            for _ in range(requests):
                before = clock()
                await connection.request(subject, payload, timeout=5.0)
                latencies.append(clock() - before)
            return 0.0
        finally:
            await connection.close()

    ourclient.run(work())
    return latencies
