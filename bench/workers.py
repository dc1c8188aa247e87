"""What a worker costs beside the bare client: processor time for a message that is read and acknowledged.

    python bench/workers.py [--messages 50000]

Broker, client and handler share one process, so the broker's part is in each figure.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import headrace
from headrace.client import JetStreamMessage
from headrace.worker import Worker, run

ROUNDS = 3


class Order(msgspec.Struct):
    id: int
    item: str


class Until:
    """Counts handled messages."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.over = asyncio.Event()

    def one(self) -> None:
        self.left -= 1
        if not self.left:
            self.over.set()


@asynccontextmanager
async def filled(messages: int) -> Any:
    async with headrace.Broker(port=-1, sync="os") as broker, broker.connect() as near:
        js = near.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"], storage="memory")
        await stream.create_consumer(durable_name="c")
        async with js.publisher() as publisher:
            await publisher.send_many(("s", b'{"id":5,"item":"plum"}') for _ in range(messages))
        yield broker


async def bare(url: str, until: Until, concurrency: int | None) -> None:
    decoder = msgspec.json.Decoder(Order)

    async def handle(message: JetStreamMessage) -> None:
        decoder.decode(message.payload)
        message.ack()
        until.one()

    async with headrace.connect(url) as connection:
        consumer = await connection.jetstream().consumer("S", "c")
        async with consumer.consume(handle, concurrency=concurrency):
            await until.over.wait()


async def worker_of(url: str, until: Until, kind: str) -> None:
    worker = Worker("bench")
    declare = worker.consumer("S", "c", on_failure=headrace.DeadLetter("dead"))
    if kind == "typed":

        @declare
        async def typed(order: Order) -> None:
            until.one()
    else:

        @declare
        async def plain(message: JetStreamMessage) -> None:
            until.one()

    await run(worker, until.over, servers=url)


WAYS: dict[str, Callable[[str, Until], Any]] = {
    "consume(handle), msgspec": lambda url, until: bare(url, until, None),
    "consume(handle, concurrency=1), msgspec": lambda url, until: bare(url, until, 1),
    "worker, message": lambda url, until: worker_of(url, until, "message"),
    "worker, model": lambda url, until: worker_of(url, until, "typed"),
}


async def measured(way: Callable[[str, Until], Any], messages: int) -> float:
    async with filled(messages) as broker:
        until = Until(messages)
        began = time.process_time()
        await way(broker.client_url, until)
        return (time.process_time() - began) / messages * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    messages = parser.parse_args().messages
    for name, way in WAYS.items():
        best = min(asyncio.run(measured(way, messages)) for _ in range(ROUNDS))
        print(f"{name:42} {best:6.1f} µs a message")


if __name__ == "__main__":
    main()
