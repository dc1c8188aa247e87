"""The measured work, done through our client."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import time
from collections.abc import Coroutine
from typing import Any, Literal

import headrace

connect = headrace.connect
# Imports the whole client now, so that it is not in what is measured.
importlib.import_module("headrace.client.jetstream_context")
SUBJECT = "bench.publish"
ACK_TIMEOUT = 120.0  # a slow disk is measured, not given up


LOOPS = ("asyncio", "uvloop")
loop_name = "asyncio"  # what a client has without doing anything; bench/run.py --loop sets it


def run(work: Coroutine[Any, Any, float]) -> float:
    """Run on the chosen event loop; every client gets the same one."""
    loop_factory = None
    if loop_name == "uvloop":
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


def publish(
    url: str,
    config: dict[str, Any],
    messages: int,
    window: int,
    payload_bytes: int,
    warm_up: int,
    *,
    deduplicate: bool = False,
) -> float:
    """Messages per second through the windowed publisher, until the last acknowledgement."""

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            stream = await js.create_stream(**config)
            message = (SUBJECT, b"x" * payload_bytes)
            async with js.publisher(
                window=window, ack_timeout=ACK_TIMEOUT, deduplicate=deduplicate
            ) as publisher:
                await publisher.send_many(itertools.repeat(message, warm_up))
                await publisher.flush()
                started = time.perf_counter()
                await publisher.send_many(itertools.repeat(message, messages))
                await publisher.flush()
                seconds = time.perf_counter() - started
            state = (await stream.info()).state
            assert state.messages == warm_up + messages, state
            return messages / seconds

    return run(work())


def fetch(
    url: str,
    stream: str,
    durable: str,
    messages: int,
    batch: int,
    *,
    acks: Literal["each", "batch", "none"],
) -> float:
    """Messages per second of fetching and reading every payload, acknowledged one by one, or not."""

    async def work() -> float:
        async with connect(url) as connection:
            consumer = await connection.jetstream().consumer(stream, durable)
            taken = size = 0
            started = time.perf_counter()
            while taken < messages:
                fetched = await consumer.fetch(batch, max_wait=10.0)
                for message in fetched:
                    size += len(message.payload)
                    if acks == "each":
                        await message.ack()
                if acks == "batch":
                    await fetched.ack()
                taken += len(fetched)
            await connection.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)

    return run(work())


def take_single(url: str, stream: str, durable: str, messages: int) -> float:
    """Messages per second of ``await consumer.next()`` and ``await message.ack()``."""

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            started = time.perf_counter()
            consumer = await js.create_consumer(stream, durable_name=durable, ack_policy="explicit")
            for _ in range(messages):
                message = await consumer.next(max_wait=10.0)
                await message.ack()
            await connection.flush()
            return messages / (time.perf_counter() - started)

    return run(work())


def consume(url: str, stream: str, durable: str, messages: int, kept_ready: int) -> float:
    """Messages per second of ``async for message in consumer.consume(…)``, ``await message.ack()``."""

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            started = time.perf_counter()
            consumer = await js.create_consumer(
                stream, durable_name=durable, ack_policy="explicit", max_ack_pending=2 * kept_ready
            )
            taken = size = 0
            async with consumer.consume(max_messages=kept_ready) as arriving:
                async for message in arriving:
                    size += len(message.payload)
                    await message.ack()
                    taken += 1
                    if taken == messages:
                        break
                await connection.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)

    return run(work())


def consume_by_callback(
    url: str, stream: str, durable: str, messages: int, kept_ready: int
) -> float:
    """The same by ``consumer.consume(callback)``."""

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            done = asyncio.Event()
            taken = size = 0

            async def handle(message: Any) -> None:
                nonlocal taken, size
                size += len(message.payload)
                await message.ack()
                taken += 1
                if taken == messages:
                    done.set()

            started = time.perf_counter()
            consumer = await js.create_consumer(
                stream, durable_name=durable, ack_policy="explicit", max_ack_pending=2 * kept_ready
            )
            async with consumer.consume(handle, max_messages=kept_ready):
                await done.wait()
                await connection.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)

    return run(work())


def pull(url: str, stream: str, durable: str, messages: int, batch: int) -> float:
    """As ``fetch``, each acknowledged, with a consumer that it makes itself."""

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            started = time.perf_counter()
            consumer = await js.create_consumer(
                stream, durable_name=durable, ack_policy="explicit", max_ack_pending=2 * batch
            )
            taken = size = 0
            while taken < messages:
                for message in await consumer.fetch(batch, max_wait=10.0):
                    size += len(message.payload)
                    await message.ack()
                    taken += 1
            await connection.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)

    return run(work())


def publish_awaited(url: str, messages: int, payload_bytes: int) -> float:
    """Messages per second, each acknowledged before the next one is sent."""

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            for _ in range(messages):
                await js.publish(SUBJECT, payload)
            return messages / (time.perf_counter() - started)

    return run(work())


def publish_windowed(
    url: str, messages: int, window: int, payload_bytes: int, *, fast: bool = False
) -> float:
    """Messages per second of ``await publisher.send(…)``, one call per message as with others.

    ``fast``: in fast batches, which set how many are in flight, up to the window.
    """

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            async with js.publisher(window, ack_timeout=ACK_TIMEOUT, fast=fast) as publisher:
                for _ in range(messages):
                    await publisher.send(SUBJECT, payload)
            return messages / (time.perf_counter() - started)

    return run(work())


def publish_many(
    url: str, messages: int, window: int, payload_bytes: int, *, fast: bool = False
) -> float:
    """The same by ``send_many``."""

    async def work() -> float:
        async with connect(url) as connection:
            js = connection.jetstream()
            message = (SUBJECT, b"x" * payload_bytes)
            started = time.perf_counter()
            async with js.publisher(window, ack_timeout=ACK_TIMEOUT, fast=fast) as publisher:
                await publisher.send_many(itertools.repeat(message, messages))
            assert publisher.acked == messages, publisher
            return messages / (time.perf_counter() - started)

    return run(work())


def publish_core(url: str, messages: int, payload_bytes: int) -> float:
    """Messages per second of ``await connection.publish(…)``, until the server has read all of them."""

    async def work() -> float:
        async with connect(url) as connection:
            payload = b"x" * payload_bytes
            started = time.perf_counter()
            for _ in range(messages):
                await connection.publish(SUBJECT, payload)
            await connection.flush()
            return messages / (time.perf_counter() - started)

    return run(work())


def core_rounds(url: str, messages: int, at_once: int, payload_bytes: int) -> float:
    """Messages per second published and received by one client, so many at a time."""

    async def work() -> float:
        async with connect(url) as connection:
            payload = b"x" * payload_bytes
            arriving = await connection.subscribe("core.here")
            await connection.flush()
            size = 0
            started = time.perf_counter()
            for _ in range(messages // at_once):
                for _ in range(at_once):
                    await connection.publish("core.here", payload)
                for _ in range(at_once):
                    size += len((await anext(arriving)).payload)
            assert size == messages * payload_bytes, "every message came"
            return messages / (time.perf_counter() - started)

    return run(work())


def request_latencies(url: str, subject: str, requests: int, payload_bytes: int) -> list[float]:
    """Seconds of each request, one after the other, to whoever answers on ``subject``."""
    latencies: list[float] = []

    async def work() -> float:
        async with connect(url) as connection:
            payload = b"x" * payload_bytes
            clock = time.perf_counter
            for _ in range(requests):
                before = clock()
                await connection.request(subject, payload, timeout=5.0)
                latencies.append(clock() - before)
        return 0.0

    run(work())
    return latencies
