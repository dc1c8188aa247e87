"""Members of natsio-pcgroups (Python 3.13) in a process of their own, which only count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import natsio
from natsio.jetstream import ConsumerConfig
from natsio.pcgroups import elastic_consume, static_consume

import group_work
from group_work import Counter, Order


async def work(order: Order, counter: Counter, joined: Callable[[], None]) -> None:
    async def handle(message: Any) -> None:
        if order.work:
            await asyncio.sleep(order.work)
        await message.ack()
        counter.one(message.payload)

    config = ConsumerConfig(
        ack_wait=timedelta(seconds=order.ack_wait), max_ack_pending=order.max_ack_pending
    )
    consume = elastic_consume if order.kind == "elastic" else static_consume
    client = await natsio.connect(order.url)
    try:
        js = client.jetstream()
        sessions = [
            await consume(js, order.stream, order.group, member, handle, config)
            for member in order.members
        ]
        joined()
        await counter.over.wait()
        for session in sessions:
            await session.stop()
    finally:
        await client.close()


if __name__ == "__main__":
    group_work.run(work)
