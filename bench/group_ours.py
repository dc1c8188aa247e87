"""Members of ours in a process of their own, which only count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import group_work
from group_work import Counter, Order
from headrace import ConsumerConfig, connect
from headrace.groups import GroupMessage, elastic, static


class SetFromThreads:
    """An event of the loop that a thread sets."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event
        self._loop = asyncio.get_running_loop()

    def set(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)


async def work(
    order: Order, counter: Counter, joined: Callable[[], None], *, is_plain: bool = False
) -> None:
    async def awaits(message: GroupMessage) -> None:
        if order.work:
            await asyncio.sleep(order.work)
        await message.ack()
        counter.one(message.payload)

    def blocks(message: GroupMessage) -> None:
        if order.work:
            time.sleep(order.work)
        message.ack()
        counter.one(message.payload)

    over = counter.over
    handle: Callable[[GroupMessage], object] = blocks if is_plain else awaits
    if is_plain:
        counter.over = SetFromThreads(over)  # type: ignore[assignment]
    config = ConsumerConfig(ack_wait=order.ack_wait, max_ack_pending=order.max_ack_pending)
    join = elastic.join if order.kind == "elastic" else static.join
    async with AsyncExitStack() as stack:
        js = (await stack.enter_async_context(connect(order.url))).jetstream()
        for member in order.members:
            await stack.enter_async_context(
                join(js, order.stream, order.group, member, handle, config)
            )
        joined()
        await over.wait()


async def consume(order: Order, counter: Counter, joined: Callable[[], None]) -> None:
    """The same by a plain consumer of ours, without a group: what the group's machinery costs."""
    async with connect(order.url) as connection:
        js = connection.jetstream()
        consumer = await js.consumer(order.stream, order.group)
        joined()
        async with consumer.consume() as messages:
            async for message in messages:
                await message.ack()
                counter.one(message.payload)
                if counter.over.is_set():
                    break


if __name__ == "__main__":
    import sys

    kinds = {"plain": consume, "function": partial(work, is_plain=True)}
    group_work.run(kinds[sys.argv[2]] if sys.argv[2:] else work)
