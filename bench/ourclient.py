"""The measured work, done through our client."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Coroutine
from typing import Any

import headrace

SUBJECT = "bench.publish"


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
    url: str, config: dict[str, Any], messages: int, window: int, payload_bytes: int, warm_up: int
) -> float:
    """Messages per second through the windowed publisher, until the last acknowledgement."""

    async def work() -> float:
        async with headrace.connect(url) as connection:
            js = connection.jetstream()
            stream = await js.create_stream(**config)
            message = (SUBJECT, b"x" * payload_bytes)
            async with js.publisher(window=window) as publisher:
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
    url: str, stream: str, durable: str, messages: int, batch: int, *, ack_one_by_one: bool
) -> float:
    """Messages per second of fetching, reading every payload, acknowledging every message."""

    async def work() -> float:
        async with headrace.connect(url) as connection:
            js = connection.jetstream()
            consumer = await js.create_consumer(
                stream, durable_name=durable, ack_policy="explicit", max_ack_pending=2 * batch
            )
            taken = size = 0
            started = time.perf_counter()
            while taken < messages:
                fetched = await consumer.fetch(batch, max_wait=10.0)
                for message in fetched:
                    size += len(message.payload)
                    if ack_one_by_one:
                        await message.ack()
                if not ack_one_by_one:
                    await fetched.ack()
                taken += len(fetched)
            await connection.flush()
            assert size, "payloads were read"
            return messages / (time.perf_counter() - started)

    return run(work())
