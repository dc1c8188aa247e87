"""Members of ours in a process of their own, which only count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import group_work
from group_work import Counter, Order
from headrace import ConsumerConfig, connect
from headrace.groups import GroupMessage, elastic, static


async def work(order: Order, counter: Counter, joined: Callable[[], None]) -> None:
    async def handle(message: GroupMessage) -> None:
        if order.work:
            await asyncio.sleep(order.work)
        await message.ack()
        counter.one(message.payload)

    config = ConsumerConfig(ack_wait=order.ack_wait, max_ack_pending=order.max_ack_pending)
    join = elastic.join if order.kind == "elastic" else static.join
    async with AsyncExitStack() as stack:
        js = (await stack.enter_async_context(connect(order.url))).jetstream()
        for member in order.members:
            await stack.enter_async_context(
                join(js, order.stream, order.group, member, handle, config)
            )
        joined()
        await counter.over.wait()


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

    group_work.run(consume if sys.argv[2:] == ["plain"] else work)
