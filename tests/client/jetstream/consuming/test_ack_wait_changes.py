"""A consume goes by the ``ack_wait`` that its consumer has, also when that is changed under it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace.client import JetStream, JetStreamMessage, Stream
from headrace.errors import AuthorizationError
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


@pytest.mark.parametrize(("before", "after"), [(3.0, 0.6), (0.6, 3.0)])
async def test_what_is_held_is_renewed_by_the_new_time(
    js: JetStream, stream: Stream, before: float, after: float
) -> None:
    consumer = await stream.create_consumer(durable_name="c", ack_wait=before)
    for _ in range(5):
        await js.publish(f"{stream.name}.a", b"")
    going = asyncio.Event()
    handled: list[int] = []

    async def handle(message: JetStreamMessage) -> None:
        await going.wait()
        handled.append(message.metadata.stream_seq)
        await message.ack_sync()

    async with consumer.consume(handle, max_messages=10) as consumption:
        await until(lambda: consumption.buffered == 4)
        config = msgspec.structs.replace((await consumer.info()).config, ack_wait=after)
        await stream.update_consumer(config)
        keeper: Any = consumption._feed._keeper
        await until(lambda: keeper._ages.ack_wait == after, "it was never followed")
        going.set()
        await until(lambda: {*handled} == {1, 2, 3, 4, 5})
    assert (await consumer.info()).num_ack_pending == 0


async def test_who_may_not_ask_goes_on_with_what_is_known(js: JetStream, stream: Stream) -> None:
    consumer = await stream.create_consumer(durable_name="c", ack_wait=0.6)
    asked: list[int] = []
    real = consumer.info

    async def refused() -> Any:
        asked.append(1)
        await real()
        raise AuthorizationError("permissions violation")

    consumer.info = refused  # type: ignore[method-assign]
    for _ in range(3):
        await js.publish(f"{stream.name}.a", b"")
    going = asyncio.Event()
    handled: list[int] = []

    async def handle(message: JetStreamMessage) -> None:
        await going.wait()
        handled.append(message.metadata.delivered)
        await message.ack_sync()

    async with consumer.consume(handle, max_messages=10) as consumption:
        await until(lambda: bool(asked))
        keeper: Any = consumption._feed._keeper
        await until(lambda: keeper._following._not_before == float("inf"))
        going.set()
        await until(lambda: len(handled) >= 3)
    assert len(asked) == 1
