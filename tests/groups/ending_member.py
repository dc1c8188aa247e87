"""A program with a member of each kind, and a service, until it ends as it is told.

``ending_member.py URL STREAM leave|run|return ACK_WAIT``: on SIGTERM it leaves its blocks, or SIGTERM is
not handled, or it returns without closing anything when there is a line on its standard input.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from contextlib import AsyncExitStack
from typing import Any

from headrace import sync
from headrace.api.consumers import ConsumerConfig
from headrace.client import connect
from headrace.groups import elastic
from headrace.sync.groups import elastic as blocking_elastic

WORK_S = 0.05
lock = threading.Lock()


def say(what: str, way: str, number: str) -> None:
    with lock:
        sys.stdout.write(f"{what} {way} {number}\n")
        sys.stdout.flush()


async def work_for(seconds: float) -> None:
    await asyncio.sleep(seconds)


def work_here_for(seconds: float) -> None:
    time.sleep(seconds)


async def coroutine(message: Any) -> None:
    say("begun", "coroutine", message.payload.decode())
    await work_for(WORK_S)
    message.ack()
    say("acked", "coroutine", message.payload.decode())


def plain(message: Any, way: str = "plain") -> None:
    say("begun", way, message.payload.decode())
    work_here_for(WORK_S)
    message.ack()
    say("acked", way, message.payload.decode())


def blocking(message: Any) -> None:
    plain(message, "blocking")


async def iterate(membership: Any) -> None:
    async for message in membership:
        say("begun", "iterated", message.payload.decode())
        await work_for(WORK_S)
        message.ack()
        say("acked", "iterated", message.payload.decode())


async def endpoint(message: Any) -> bytes:
    say("begun", "service", message.payload.decode())
    await work_for(WORK_S)
    say("acked", "service", message.payload.decode())
    return b"answered"


async def main(url: str, stream: str, how: str, ack_wait: str) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    config = ConsumerConfig(ack_wait=float(ack_wait), max_ack_pending=1000)
    if how == "leave":
        loop.add_signal_handler(signal.SIGTERM, over.set)
    connection, threads = await connect(url), sync.connect(url)
    js = connection.jetstream()
    members = [
        elastic.join(js, stream, "g", "coroutine", coroutine, config),
        elastic.join(js, stream, "g", "plain", plain, config),
        elastic.join(js, stream, "g", "iterated", config=config),
    ]
    member = blocking_elastic.join(threads.jetstream(), stream, "g", "blocking", blocking, config)
    service = await connection.add_service("ending", version="1.0.0")
    await service.add_endpoint("ask", endpoint, subject=f"ask.{how}")
    if how == "return":
        line = lambda: (sys.stdin.readline(), loop.call_soon_threadsafe(over.set))  # noqa: E731
        threading.Thread(target=line).start()
    if how != "leave":
        for each in members:
            await each.start()
        await asyncio.to_thread(member.__enter__)
        iterating = asyncio.create_task(iterate(members[2]))
        await over.wait()
        del iterating
        return
    async with connection, AsyncExitStack() as stack:
        for each in members:
            await stack.enter_async_context(each)
        await stack.enter_async_context(service)
        await asyncio.to_thread(member.__enter__)
        iterating = asyncio.create_task(iterate(members[2]))
        await over.wait()
    await iterating
    await asyncio.to_thread(threads.close)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
