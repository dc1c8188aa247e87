"""Whatever keeps a place in a stream of numbers, each told in the same three words.

``begin`` sets it up. ``read`` gives the numbers that it has got since the last time, up to one that is
awaited; it raises RefusedError where it does not go on. ``advised`` does what was said then.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Protocol

import httpx2
import msgspec

from feed_world import Feeding
from headrace.api.streams import StreamSource
from headrace.client import DeadLetter, JetStream, JetStreamMessage, OrderedConsumer
from headrace.clock import ManualClock
from headrace.errors import (
    ConsumerNotFoundError,
    DisconnectedError,
    HeadraceError,
    NoRespondersError,
    PullError,
)
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from headrace.jobs.http import create_app
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from headrace.spark.batches.driver import Driver
from headrace.spark.offsets import Offset
from headrace.spark.options import SourceOptions, parse_options
from headrace.spark.slices import Slice
from headrace.spark.tasks.read_slice import read_slice
from headrace.worker import Done
from jobs_world import World as JobsWorld
from waiting import until

from .world import RefusedError, World, command

PATIENCE_S = 30.0
"""nats-server's copies begin some seconds later, and a group's members wait for leases."""


class Keeper(Protocol):
    def __init__(self, world: World, stack: AsyncExitStack) -> None: ...
    async def begin(self) -> None: ...
    async def read(self, last: int) -> list[int]: ...
    async def advised(self, happening: str, text: str) -> None: ...


class Base:
    """What most have in common."""

    def __init__(self, world: World, stack: AsyncExitStack) -> None:
        self.world, self.stack = world, stack
        self.seen: Counter[int] = Counter()

    @property
    def js(self) -> JetStream:
        return self.world.js

    def new_of(self, numbers: list[int]) -> list[int]:
        """Those that were not seen yet, each as often as it came."""
        left, found = self.seen.copy(), []
        for number in numbers:
            if left[number]:
                left[number] -= 1
            else:
                found.append(number)
        self.seen.update(found)
        return found

    async def advised(self, happening: str, text: str) -> None:
        raise AssertionError(f"nothing was to be said: {text}")


async def numbers_in(js: JetStream, stream: str) -> list[int]:
    """What a stream holds."""
    return [int(each.payload) async for each in (await js.stream(stream)).scan()]


class Consumer(Base):
    """A durable consumer of a worker."""

    async def begin(self) -> None:
        await self.js.create_consumer("S", durable_name="C")

    async def read(self, last: int) -> list[int]:
        try:
            consumer = await self.js.consumer(self.world.stream, "C")
        except HeadraceError as error:
            raise RefusedError(str(error)) from error
        came: list[int] = []
        while last not in came:
            batch = await consumer.fetch(1, max_wait=PATIENCE_S)
            assert batch, f"{last} never came, but {came}"
            for message in batch:
                came.append(int(message.payload))
                await message.ack_sync()
        return came

    async def advised(self, happening: str, text: str) -> None:
        await self.js.create_consumer(self.world.stream, durable_name="C", **begin_in(self.world))


def begin_in(world: World) -> dict[str, Any]:
    """Where ``stream repartition`` says that a reader of the new stream begins; else at the beginning."""
    told = re.search(r"what reads T begins at (\d+)", world.said)
    if told is None:
        return {}
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(told[1])}


class Copy(Base):
    """A stream that copies."""

    settings: ClassVar[dict[str, Any]]

    async def begin(self) -> None:
        await self.js.create_stream(name="M", allow_direct=True, **self.settings)

    async def read(self, last: int) -> list[int]:
        try:
            await until(lambda: self._has(last), f"{last} was not copied", within=PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"copied: {await numbers_in(self.js, 'M')}, not {last}") from None
        return self.new_of(await numbers_in(self.js, "M"))

    async def _has(self, last: int) -> bool:
        stream = await self.js.stream("M")
        info = await stream.info()
        copied = info.mirror or info.sources[0]
        if copied.error is not None and copied.error["err_code"] != 10059:
            raise RefusedError(str(copied.error))
        if not info.state.messages:
            return False
        return int((await stream.get_last_message(">")).payload) == last


class Mirror(Copy):
    settings: ClassVar[dict[str, Any]] = {"mirror": StreamSource(name="S")}

    async def advised(self, happening: str, text: str) -> None:
        """Delete it, and create it again."""
        await self.js.delete_stream("M")
        await self.js.create_stream(
            name="M", allow_direct=True, mirror=StreamSource(name=self.world.stream)
        )


class Source(Copy):
    settings: ClassVar[dict[str, Any]] = {"sources": (StreamSource(name="S"),)}

    async def advised(self, happening: str, text: str) -> None:
        begin = begin_in(self.world)["opt_start_seq"]
        await (await self.js.stream("M")).update(
            sources=(StreamSource(name=self.world.stream, opt_start_seq=begin),)
        )


class Group(Base):
    """An elastic group with a member."""

    def __init__(self, world: World, stack: AsyncExitStack) -> None:
        super().__init__(world, stack)
        self.came: list[int] = []

    async def begin(self) -> None:
        by_key = [PartitioningFilter("s.*", (1,))]
        await elastic.create(self.js, "S", "g", 2, partitioning_filters=by_key, members=["a"])

    async def read(self, last: int) -> list[int]:
        came: list[int] = []

        async def handle(message: GroupMessage) -> None:
            came.append(int(message.payload))
            await message.ack_sync()

        async with elastic.join(self.js, "S", "g", "a", handle):
            await until(lambda: last in came, f"{last} never came", within=PATIENCE_S)
        return came


class Reader(Base):
    """An ordered consumer, as behind the console's view of what comes, and behind watches of buckets."""

    ordered: OrderedConsumer

    async def begin(self) -> None:
        self.ordered = await self.js.ordered_consumer("S")

    async def read(self, last: int) -> list[int]:
        came: list[int] = []

        async def some() -> bool:
            with contextlib.suppress(NoRespondersError, PullError, DisconnectedError):
                came.extend(int(each.payload) for each in await self.ordered.fetch(9, max_wait=1))
            return last in came

        await until(some, f"{last} never came", within=PATIENCE_S)
        return came


class JobsFeed(Base):
    """A feed of the job service."""

    feeding: Feeding

    async def begin(self) -> None:
        clock = ManualClock()
        database = open_database(f"sqlite:///{self.world.directory / 'jobs.db'}", clock=clock)
        runtime = Runtime(database, Options(), clock=clock)
        await runtime.start()
        self.stack.push_async_callback(runtime.close)
        transport = httpx2.ASGITransport(create_app(runtime))
        http = httpx2.AsyncClient(transport=transport, base_url="http://jobs")
        self.stack.push_async_callback(http.aclose)
        jobs = JobsWorld(http, runtime, clock)
        await jobs.define()
        self.feeding = Feeding(jobs, self.world.url)

    async def read(self, last: int) -> list[int]:
        named = {"url": self.world.url, "stream": self.world.stream, "name": "S"}
        self.feeding.config = msgspec.structs.replace(self.feeding.config, **named)
        async with self.feeding.running():

            async def has() -> bool:
                return str(last) in await self.feeding.payloads()

            await until(has, f"{last} became no job", within=PATIENCE_S)
        return self.new_of([int(each) for each in await self.feeding.payloads()])


class SparkStream(Base):
    """A streaming query of Spark: its offsets, and what its tasks read."""

    offset: Offset | None = None
    rule = "fail"

    async def begin(self) -> None: ...

    async def read(self, last: int) -> list[int]:
        came: list[int] = []
        while last not in came:
            try:
                came += await asyncio.to_thread(self._batch)
            except HeadraceError as error:
                raise RefusedError(str(error)) from error
        return came

    def _batch(self) -> list[int]:
        return self.read_planned(self.plan())

    def plan(self) -> list[Slice]:
        """The tasks of what there is now."""
        driver = Driver(self._options)
        try:
            start = self.offset or driver.initial_offset()
            end = driver.end(driver.look(start), None)
            pieces = driver.plan(start, end)
            self.offset = Offset.from_dict(end.to_dict())
        finally:
            driver.close()
        return pieces

    def read_planned(self, pieces: list[Slice]) -> list[int]:
        """What the tasks read."""
        options = self._options
        rows = [batch for piece in pieces for batch in read_slice(options, ("data",), piece)]
        return [int(each) for batch in rows for each in batch.column("data").to_pylist()]

    @property
    def _options(self) -> SourceOptions:
        named = {"stream": self.world.stream, "servers": self.world.url, "pollTimeout": "50ms"}
        return parse_options({**named, "onStreamReset": self.rule}, streaming=True)

    async def advised(self, happening: str, text: str) -> None:
        self.rule = "continue"


class WorkersDone(Base):
    """What a worker has noted as done, of messages that all come again each time."""

    async def begin(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.stack.callback(self.database.close)
        self.done = Done("billing")
        self.done.create(self.database)

    async def read(self, last: int) -> list[int]:
        came: list[int] = []
        stream = await self.js.stream(self.world.stream)
        consumer = await stream.create_consumer(ack_policy="none")
        number = 0
        while number != last:
            for message in await consumer.fetch(100, max_wait=1):
                number = int(message.payload)
                with self.database:
                    if self.done.first_time(self.database, message):
                        came.append(number)
        return came

    async def advised(self, happening: str, text: str) -> None:
        with self.database:
            self.done.renamed(self.database, "S", "T")


class Letters(Base):
    """Dead letters of messages that all fail, and all come again each time."""

    async def begin(self) -> None:
        await self.js.create_stream(name="D", subjects=["dead"], allow_direct=True)
        self.world.along = ["S", "D"]

    async def read(self, last: int) -> list[int]:
        stream = await self.js.stream(self.world.stream)
        if self.world.stream == "S":  # all of it comes again
            with contextlib.suppress(ConsumerNotFoundError):
                await stream.delete_consumer("L")
        try:
            consumer = await stream.consumer("L")
        except ConsumerNotFoundError:
            consumer = await stream.create_consumer(durable_name="L", **begin_in(self.world))

        def fail(message: JetStreamMessage) -> None:
            raise ValueError(message.payload)

        policy = DeadLetter("dead", after=1)
        async with consumer.consume(fail, on_failure=policy, on_error=lambda _: None):

            async def has() -> bool:
                return last in await numbers_in(self.js, "D")

            await until(has, f"no letter of {last}", within=PATIENCE_S)
        return self.new_of(await numbers_in(self.js, "D"))


class Following(Base):
    """A copy on another server, which ``stream copy`` makes and goes on with."""

    after: tuple[str, ...] = ()

    async def begin(self) -> None:
        self.url, self.there = await self.world.another(self.world.kind)

    async def read(self, last: int) -> list[int]:
        words = ("stream", "copy", self.world.stream, "K", "--server", self.world.url)
        status, said = await command(*words, "--to-server", self.url, *self.after)
        self.after = ()
        if status:
            raise RefusedError(said)
        return self.new_of(await numbers_in(self.there, "K"))

    async def advised(self, happening: str, text: str) -> None:
        told = re.search(r"--after (\d+)", text)
        assert told, text
        self.after = ("--after", told[1])


KEEPERS: dict[str, Callable[[World, AsyncExitStack], Keeper]] = {
    "consumer": Consumer,
    "mirror": Mirror,
    "source": Source,
    "group": Group,
    "reader": Reader,
    "feed": JobsFeed,
    "spark": SparkStream,
    "done": WorkersDone,
    "letters": Letters,
    "copy": Following,
}
