"""What one Python takes for the same work: run it with each, and compare.

    for python in 3.11 3.12 3.13 3.14; do PYTHONPATH=src python$python bench/interpreters.py; done

A broker and a client in one process, without sockets and on disk: µs of processor for each message. Needs
msgspec beside it. How an interpreter was built (profile-guided or not) counts as much as its version.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time

import headrace

MANY, FEW = 200_000, 3_000


async def measure(folder: str) -> dict[str, float]:
    """µs of processor time by kind of work."""
    took: dict[str, float] = {}

    def note(what: str, begun: float, count: int) -> None:
        took[what] = round((time.process_time() - begun) / count * 1e6, 2)

    async with headrace.Broker(store_dir=folder) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"])
        begun = time.process_time()
        async with js.publisher() as publisher:
            await publisher.send_many((f"s.{n % 100}", bytes(100)) for n in range(MANY))
        note("windowed publish", begun, MANY)
        consumer = await stream.create_consumer(durable_name="c")
        begun, left = time.process_time(), MANY
        while left:
            batch = await consumer.fetch(1_000)
            left -= len(batch)
            await batch.ack()
        note("fetch and ack", begun, MANY)
        begun = time.process_time()
        for _ in range(FEW):
            await js.publish("s.1", b"x")
        note("awaited publish", begun, FEW)
        await connection.subscribe("q", callback=lambda message: message.respond(message.payload))
        begun = time.process_time()
        for _ in range(FEW):
            await connection.request("q", b"x")
        note("request", begun, FEW)
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        took = asyncio.run(measure(folder))
    print(json.dumps({"python": sys.version.split()[0], **took}))


if __name__ == "__main__":
    main()
