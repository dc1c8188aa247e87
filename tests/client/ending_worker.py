"""A program that consumes in every way, each through a consumer of its own, until it ends as it is told.

``ending_worker.py URL STREAM leave|run|return``: on SIGTERM it leaves its blocks, or SIGTERM is not handled,
or it returns without closing anything when there is a line on its standard input.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from typing import Any

from headrace import sync
from headrace.client import Connection, connect

WORK_S = 0.05


def say(what: str, way: str, message: Any) -> None:
    sys.stdout.write(f"{what} {way} {message.metadata.stream_seq}\n")
    sys.stdout.flush()


async def called(connection: Connection, stream: str, seconds: float = WORK_S) -> None:
    async def handle(message: Any) -> None:
        say("begun", "called", message)
        await asyncio.sleep(seconds)
        message.ack()
        say("acked", "called", message)

    consumer = await connection.jetstream().consumer(stream, "called")
    consumer.consume(handle, max_messages=20)


async def iterated(connection: Connection, stream: str, seconds: float = WORK_S) -> None:
    consumer = await connection.jetstream().consumer(stream, "iterated")
    async with consumer.consume(max_messages=20) as messages:
        async for message in messages:
            say("begun", "iterated", message)
            await asyncio.sleep(seconds)
            message.ack()
            say("acked", "iterated", message)


def in_a_thread(connection: sync.Connection, stream: str, seconds: float = WORK_S) -> None:
    def handle(message: Any) -> None:
        say("begun", "thread", message)
        time.sleep(seconds)
        message.ack()
        say("acked", "thread", message)

    connection.jetstream().consumer(stream, "thread").consume(handle, max_messages=20)


async def main(url: str, stream: str, how: str) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    if how == "leave":
        loop.add_signal_handler(signal.SIGTERM, over.set)
    connection, blocking = await connect(url), sync.connect(url)
    await called(connection, stream)
    in_a_thread(blocking, stream)
    iterating = asyncio.create_task(iterated(connection, stream))
    if how == "leave":
        async with connection:
            await over.wait()
        await asyncio.gather(iterating, return_exceptions=True)
        await asyncio.to_thread(blocking.close)
    elif how == "return":
        wait = threading.Thread(
            target=lambda: (sys.stdin.readline(), loop.call_soon_threadsafe(over.set))
        )
        wait.start()
        await over.wait()
    else:
        await over.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
