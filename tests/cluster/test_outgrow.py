"""A stream moves from our broker to three nats-servers while producers run, as docs/outgrow.md says."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path

import pytest

import peers
from headrace.cli.stream.copy import COPIED, STORED
from headrace.client import Connection, connect
from nats_cluster import Cluster
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]  # the servers start within it

Factory = Callable[..., peers.ServerProcess]


class Producer:
    """Publishes numbers, one after the other, where it is told to."""

    def __init__(self) -> None:
        self.number = 0
        self._here: Connection | None = None
        self._idle = asyncio.Event()
        self._go = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            if self._here is None:
                self._idle.set()
                await self._go.wait()
                continue
            subject = f"orders.{self.number % 7}"
            payload = b"%d" % self.number
            await self._here.jetstream().publish(subject, payload, headers={"N": str(self.number)})
            self.number += 1

    def begin(self, connection: Connection) -> None:
        self._here = connection
        self._idle.clear()
        self._go.set()

    async def pause(self) -> None:
        """Everything it has published is acknowledged."""
        self._here = None
        self._go.clear()
        await self._idle.wait()

    async def more(self, count: int) -> None:
        goal = self.number + count
        await until(lambda: self.number >= goal, "the producer stands still")

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def copying(origin: str, target: str, *more: str) -> Process:
    words = ("stream", "copy", "ORDERS", "ORDERS", "--server", origin, "--to-server", target)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace.cli", *words, *more, stdout=PIPE, stderr=None, stdin=DEVNULL
    )


async def interrupt(process: Process) -> None:
    process.send_signal(signal.SIGINT)
    await process.wait()


async def handle(connection: Connection, handled: list[int], upto: int) -> None:
    """Consume and acknowledge until a number was handled."""
    consumer = await connection.jetstream().consumer("ORDERS", "billing")
    while not handled or handled[-1] < upto:
        for message in await consumer.fetch(100, max_wait=2.0):
            await message.ack_sync()
            handled.append(int(message.payload))


async def test_nothing_is_lost_and_nothing_comes_twice(
    cluster: Cluster, headrace_server: Factory, tmp_path: Path
) -> None:
    old = headrace_server()
    handled: list[int] = []
    async with connect(old.url) as here, connect(cluster.urls) as there:
        js = here.jetstream()
        stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
        await js.create_consumer("ORDERS", durable_name="billing")
        producer = Producer()
        producer.begin(here)
        await producer.more(300)
        await handle(here, handled, 100)
        await stream.delete_message(150)

        first = await copying(old.url, cluster.urls, "--replicas", "3", "--follow")
        assert first.stdout is not None
        assert await first.stdout.readline() == b"copied stream ORDERS to ORDERS\n"
        await producer.more(200)
        await interrupt(first)  # in the middle of it
        await producer.more(50)
        await stream.delete_message(await last_of(here) - 3)  # a gap among what is to be copied
        copied = await last_of(there)
        second = await copying(old.url, cluster.urls, "--follow")
        await producer.more(200)
        await producer.pause()
        # On a busy machine it might not have begun yet, and nothing would be interrupted.
        await until(lambda: has_more(there, copied), "the second copy does nothing", within=60)
        await interrupt(second)
        last = await copying(old.url, cluster.urls)
        out, _ = await last.communicate()
        assert last.returncode == 0, out
        again = await copying(old.url, cluster.urls)
        assert (await again.communicate())[0] == b"copied 0 later messages of ORDERS to ORDERS\n"

        before = await numbers(here)
        assert await numbers(there) == before
        producer.begin(there)
        await producer.more(100)
        await producer.pause()
        await handle(there, handled, producer.number - 1)
        await producer.end()
        assert handled == sorted(set(handled))  # in order, and nothing twice
        assert set(await numbers(there)) <= set(handled)
        assert await numbers(there) == [*before, *range(before[-1] + 1, producer.number)]
        info = await (await there.jetstream().stream("ORDERS")).info()
        assert info.config.num_replicas == 3
        assert info.state.last_seq > 300
        await there.jetstream().delete_stream("ORDERS")


async def has_more(connection: Connection, sequence: int) -> bool:
    return await last_of(connection) > sequence


async def last_of(connection: Connection) -> int:
    return (await (await connection.jetstream().stream("ORDERS")).info()).state.last_seq


async def numbers(connection: Connection) -> list[int]:
    """What the stream holds, in order; each message is what it was."""
    stream = await connection.jetstream().stream("ORDERS")
    reader = await stream.ordered_consumer()
    found: list[int] = []
    count = (await stream.info()).state.messages
    while len(found) < count:
        for message in await reader.fetch(500, max_wait=2.0):
            number = int(message.payload)
            assert message.subject == f"orders.{number % 7}"
            assert message.headers["N"] == str(number)
            assert set(message.headers) <= {"N", COPIED, STORED, "Nats-Expected-Last-Sequence"}
            found.append(number)
    await reader.delete()
    return found
