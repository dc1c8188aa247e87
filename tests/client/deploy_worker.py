"""A worker as programs have them, in a process of its own, until SIGTERM: each way to consume in turn.

``deploy_worker.py URL STREAM CONSUMER LOG WAY``: says ``ready`` when it takes messages, and appends a line to
LOG for each message that it begins and ends to handle.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from headrace import sync
from headrace.client import Consumer, Options, connect
from headrace.errors import HeadraceError
from headrace.worker import Worker, run

WORK_S = 0.002
IN_TURN = (
    "callback",
    "abreast",
    "threads",
    "iterated",
    "batches",
    "fetching",
    "blocking",
    "runner",
)
OPTIONS: dict[str, Any] = {
    "reconnect_wait": 0.02,
    "reconnect_wait_max": 0.1,
    "retry_first_connect": True,
}


class Log:
    """Lines of all workers, whole: one write each, at the end of the file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, what: str, message: Any) -> None:
        line = f"{what} {os.getpid()} {message.metadata.stream_seq} {time.monotonic()}\n"
        os.write(self._file, line.encode())


class Ways:
    def __init__(self, log: Log, seconds: float = WORK_S) -> None:
        self.log = log
        self.seconds = seconds

    async def handle(self, message: Any) -> None:
        self.log.say("begun", message)
        await asyncio.sleep(self.seconds)
        message.ack()
        self.log.say("ended", message)

    def handle_here(self, message: Any) -> None:
        self.log.say("begun", message)
        time.sleep(self.seconds)
        message.ack()
        self.log.say("ended", message)

    async def callback(self, consumer: Consumer, over: asyncio.Event) -> None:
        async with consumer.consume(self.handle):
            await self.until_over(over)

    async def abreast(self, consumer: Consumer, over: asyncio.Event) -> None:
        async with consumer.consume(self.handle, concurrency=4):
            await self.until_over(over)

    async def threads(self, consumer: Consumer, over: asyncio.Event) -> None:
        async with consumer.consume(self.handle_here, concurrency=4):
            await self.until_over(over)

    async def iterated(self, consumer: Consumer, over: asyncio.Event) -> None:
        async def iterate() -> None:
            async with consumer.consume() as messages:
                async for message in messages:
                    await self.handle(message)
                    if over.is_set():
                        return

        await self.until_over(over, iterate())

    async def batches(self, consumer: Consumer, over: asyncio.Event) -> None:
        async def iterate() -> None:
            async with consumer.consume(max_messages=50) as messages:
                async for batch in messages.batches(5):
                    for message in batch:
                        await self.handle(message)
                    if over.is_set():
                        return

        await self.until_over(over, iterate())

    async def fetching(self, consumer: Consumer, over: asyncio.Event) -> None:
        async def fetch() -> None:
            while not over.is_set():
                try:
                    batch = await consumer.fetch(10, max_wait=1)
                except HeadraceError:  # the server is away
                    await asyncio.sleep(0.001)
                    continue
                for message in batch:
                    await self.handle(message)

        await self.until_over(over, fetch())

    async def runner(self, consumer: Consumer, over: asyncio.Event) -> None:
        worker = Worker("deployed")
        worker.consumer(consumer.stream_name, consumer.name, concurrency=4)(self.handle)
        url = consumer._api.session.server
        print("ready", flush=True)
        await run(worker, over, servers=str(url), options=Options(**OPTIONS), stop_timeout=6)

    async def until_over(self, over: asyncio.Event, working: Awaitable[None] | None = None) -> None:
        """Until SIGTERM; then what works has finished its message, or is cancelled where it has none."""
        print("ready", flush=True)
        if working is None:
            await over.wait()
            return
        task = asyncio.ensure_future(working)
        waits = asyncio.ensure_future(over.wait())
        await asyncio.wait([task, waits], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([task], timeout=2)
        task.cancel()
        waits.cancel()
        await asyncio.gather(task, waits, return_exceptions=True)
        if not task.cancelled():
            task.result()


async def main(url: str, stream: str, name: str, path: str, way: str) -> None:
    worker, over = Ways(Log(path)), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with connect(url, **OPTIONS) as connection:
        consumer = await connection.jetstream().consumer(stream, name)
        work: Callable[[Consumer, asyncio.Event], Awaitable[None]] = getattr(worker, way)
        await work(consumer, over)


def blocking(url: str, stream: str, name: str, path: str) -> None:
    worker = Ways(Log(path))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # in all threads: waited for below
    with sync.connect(url, **OPTIONS) as connection:
        consumer = connection.jetstream().consumer(stream, name)
        with consumer.consume(worker.handle_here):
            print("ready", flush=True)
            signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    if sys.argv[5] == "blocking":
        blocking(*sys.argv[1:5])
    else:
        asyncio.run(main(*sys.argv[1:]))
