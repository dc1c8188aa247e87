"""What programs do on a cluster that is being hurt, each with what must be true of it afterwards."""

from __future__ import annotations

import asyncio
import itertools
import operator
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from headrace.client import (
    BatchRefusedError,
    JetStream,
    KeyExistsError,
    ObjectDamagedError,
    ObjectNotFoundError,
)
from headrace.errors import HeadraceError, JetStreamApiError
from headrace.jobs.config import FeedConfig
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from headrace.jobs.streams.feed import feed_channel
from jobs_world import World, http_of
from nats_cluster import SickServersError
from waiting import elapse, until

__all__ = ["WORK", "Work"]

T = TypeVar("T")
GETS_AT_ONCE = 200
NO_SUITABLE_PEERS = 10005
ALL_S = 40.0  # for what was under way to come to its end, once the cluster is whole
PACE = "work at a steady pace"
EACH_S = 0.01 if "HEADRACE_ROUNDS" in os.environ else 0.03
"""Between two steps of a work; ``make cluster`` does more of them."""
WHERE_MAX = 20_000  # characters of what is printed of a publisher that is stuck


def faults(found: list[tuple[str, int]], total: int) -> str:
    """What is missing of the numbers below ``total``, or came more than once; "" if all is well."""
    counts = Counter(number for _, number in found)
    missing = [number for number in range(total) if not counts[number]]
    doubled = {
        number: [at for at, (_, other) in enumerate(found, 1) if other == number]
        for number, count in counts.items()
        if count > 1
    }
    if not missing and not doubled and len(counts) == total:
        return ""
    places = dict(itertools.islice(doubled.items(), 10))
    return (
        f"of {total}, {len(missing)} are missing: {missing[:20]}, {len(doubled)} came more than once: "
        f"{places} (number: places), {len(counts) - total + len(missing)} are others"
    )


async def placed(make: Callable[[], Awaitable[T]]) -> T:
    """Make something with three replicas, as soon as all servers are seen: one that was frozen is taken for
    gone some time after it is back, when the others notice that they had not heard of it."""
    deadline = time.monotonic() + ALL_S
    while True:
        try:
            return await make()
        except JetStreamApiError as error:
            if error.err_code != NO_SUITABLE_PEERS or time.monotonic() > deadline:
                raise
        await elapse(0.1, "the servers notice that one is back")


class Work(ABC):
    """Goes on until it is told to stop. ``check`` waits for what is under way, and fails if any of it was
    lost, doubled, given up or put out of order."""

    def __init__(self, js: JetStream, name: str, directory: Path) -> None:
        self.js = js
        self.name = name
        self.directory = directory
        self.stopping = asyncio.Event()
        self.done = 0
        self.in_order = True
        self.helpers: list[asyncio.Task[None]] = []

    async def prepare(self) -> None:
        """Make what it works on."""
        await self.stream()

    @abstractmethod
    async def run(self) -> None: ...

    @abstractmethod
    async def check(self) -> None: ...

    async def rest(self) -> None:
        """Between two steps."""
        await elapse(EACH_S, PACE)

    async def where(self) -> str:
        """Where it is stuck, and what the servers say of what it works on."""
        names = [name async for name in self.js.stream_names() if self.name in name]
        infos = [await (await self.js.stream(name)).info() for name in names]
        return f"{self.name}: {[(info.cluster, info.state) for info in infos]}"

    async def end(self) -> None:
        """End what helps, whatever came of it."""
        for task in self.helpers:
            task.cancel()
        await asyncio.gather(*self.helpers, return_exceptions=True)

    async def stream(self, **options: Any) -> None:
        await placed(
            lambda: self.js.create_stream(
                name=self.name, subjects=[f"{self.name}.>"], num_replicas=3, **options
            )
        )

    async def stored(self) -> list[tuple[str, int]]:
        """Subjects and numbers of the stream, in its order."""
        found: list[tuple[str, int]] = []
        stream = await self.js.stream(self.name)
        ordered = await stream.ordered_consumer()
        total = (await stream.info()).state.messages
        async with asyncio.timeout(ALL_S), ordered.consume() as messages:
            while len(found) < total:
                message = await anext(messages)
                found.append((message.subject, int(message.payload)))
        await ordered.delete()
        return found

    async def stored_by_leader(self) -> list[tuple[str, int]]:
        """The same, of the leader alone: a consumer may be on a server that lags, or has lost something."""
        stream = await self.js.stream(self.name)
        state = (await stream.info()).state
        numbers = range(state.first_seq, state.last_seq + 1)
        found: list[tuple[str, int]] = []
        for at in range(0, len(numbers), GETS_AT_ONCE):
            gets = [stream.get_message(number) for number in numbers[at : at + GETS_AT_ONCE]]
            found += [(each.subject, int(each.payload)) for each in await asyncio.gather(*gets)]
        return found

    async def check_stored(self, total: int) -> None:
        """Each number once, and in order within each subject."""
        found = await self.stored()
        if wrong := faults(found, total):
            in_leader = faults(await self.stored_by_leader(), total)
            said = f"{self.name} as a consumer sees it: {wrong}; as its leader has it: {in_leader}"
            if not in_leader:
                raise SickServersError(said)
            raise AssertionError(f"{said}; {await self.where()}")
        by_subject = defaultdict(list)
        for subject, number in found:
            by_subject[subject].append(number)
        if self.in_order:
            swapped = [
                (subject, a, b)
                for subject, numbers in by_subject.items()
                for a, b in pairwise(numbers)
                if a > b
            ]
            assert not swapped


class Windowed(Work):
    """A windowed publisher with ids, and somebody who consumes, and somebody who fetches."""

    fast = False

    async def prepare(self) -> None:
        await self.stream(allow_batched=self.fast)
        for name in ("consuming", "fetching"):
            await self.js.create_consumer(self.name, durable_name=name, ack_wait=4)
        self.seen: dict[str, set[int]] = {"consuming": set(), "fetching": set()}

    async def run(self) -> None:
        self.helpers = [asyncio.create_task(self.consume()), asyncio.create_task(self.fetch())]
        async with self.js.publisher(
            window=2_000, ack_timeout=3, deduplicate=True, fast=self.fast
        ) as self.publisher:
            publisher = self.publisher
            while not self.stopping.is_set():
                await publisher.send_many(
                    (f"{self.name}.{n % 7}", b"%d" % n) for n in range(self.done, self.done + 10)
                )
                self.done += 10
                await self.rest()
            await publisher.flush()
            assert (publisher.acked, publisher.failed) == (self.done, 0)

    async def where(self) -> str:
        state = {key: value for key, value in vars(self.publisher).items() if key != "_blocks"}
        return f"{await super().where()}; {self.publisher}: {state}"[:WHERE_MAX]

    async def consume(self) -> None:
        consumer = await self.js.consumer(self.name, "consuming")
        async with consumer.consume(expires=2, on_error=lambda error: None) as messages:
            async for message in messages:
                self.seen["consuming"].add(int(message.payload))
                message.ack()

    async def fetch(self) -> None:
        consumer = await self.js.consumer(self.name, "fetching")
        while True:
            try:
                batch = await consumer.fetch(500, max_wait=2, eager=True)
            except HeadraceError:
                await elapse(0.2, "an error is what a fetch has instead of patience")
                continue
            self.seen["fetching"].update(map(int, batch.payloads))
            batch.ack()

    async def check(self) -> None:
        await self.check_stored(self.done)
        await until(
            lambda: all(len(numbers) >= self.done for numbers in self.seen.values()),
            "not all was seen",
            within=ALL_S,
        )


class Fast(Windowed):
    """The same in fast batches."""

    fast = True


class Awaited(Work):
    """One message after the other, each awaited."""

    async def run(self) -> None:
        while not self.stopping.is_set():
            await self.js.publish(
                f"{self.name}.a", b"%d" % self.done, msg_id=f"{self.done}", timeout=2
            )
            self.done += 1
            await self.rest()

    async def check(self) -> None:
        await self.check_stored(self.done)


class Batches(Work):
    """Atomic batches of three, that expect what the one before left."""

    async def prepare(self) -> None:
        await self.stream(allow_atomic=True)

    async def run(self) -> None:
        last = 0
        while not self.stopping.is_set():
            try:
                async with self.js.batch(timeout=2) as batch:
                    for number in range(3):
                        options: Any = {"expected_last_sequence": last} if not number else {}
                        batch.add(f"{self.name}.a", b"%d" % (self.done + number), **options)
            except BatchRefusedError as error:
                ids = [*batch._former, batch._id]
                error.add_note(f"{ids} expected {last}; the leader has {await self.lately()}")
                raise
            assert batch.ack is not None
            assert batch.ack.seq == last + 3
            last = batch.ack.seq
            self.done += 3
            await self.rest()

    async def lately(self) -> list[str]:
        """The last messages, as the leader has them."""
        stream = await self.js.stream(self.name)
        end = (await stream.info()).state.last_seq
        numbers = range(max(1, end - 7), end + 1)
        found = [await stream.get_message(number) for number in numbers]
        return [f"{each.sequence}: {each.payload!r} {list(each.headers.items())}" for each in found]

    async def check(self) -> None:
        await self.check_stored(self.done)


class Keys(Work):
    """A counter in each of three keys, raised by what it was; and another one that is put."""

    async def prepare(self) -> None:
        self.bucket = await placed(
            lambda: self.js.create_key_value(self.name, history=64, num_replicas=3)
        )
        self.revisions = {key: await self.bucket.create(key, b"0") for key in "abc"}

    async def run(self) -> None:
        while not self.stopping.is_set():
            self.done += 1
            for key, revision in self.revisions.items():
                self.revisions[key] = await self.bucket.update(key, b"%d" % self.done, revision)
            await self.bucket.put("put", b"%d" % self.done)
            entry = await self.bucket.get("a")  # of a replica, which may be behind
            assert int(entry.value) <= self.done
            await self.rest()

    async def check(self) -> None:
        for key in ("a", "b", "c", "put"):
            values = [int(entry.value) for entry in await self.bucket.history(key)]
            assert values == [*range(values[0], self.done + 1)]
            assert len(values) >= min(self.done, 64)
        try:
            await self.bucket.create("a", b"")
        except KeyExistsError:
            return
        raise AssertionError("a key that is there was created")


CAUGHT_UP_S = 20.0


def ends_with(end: bytes, found: bytes) -> bool:
    return found.endswith(end)


class Objects(Work):
    """Objects of half a MiB, read again at once."""

    async def prepare(self) -> None:
        self.bucket = await placed(lambda: self.js.create_object_store(self.name, num_replicas=3))

    async def run(self) -> None:
        while not self.stopping.is_set():
            content = bytes([self.done % 256]) * 500_000 + b"%d" % self.done
            await self.bucket.put(f"{self.done % 5}", content, chunk_size=20_000)
            await self.read_until(f"{self.done % 5}", partial(operator.eq, content))
            self.done += 1
            await elapse(0.05, PACE)

    async def read_until(self, name: str, holds: Callable[[bytes], bool]) -> None:
        """Until a replica has it, each of which may be behind."""
        while True:
            try:
                if holds(await self.bucket.get(name)):
                    return
            except (ObjectNotFoundError, ObjectDamagedError):
                pass  # as good as old
            await elapse(0.05, "a replica that lags is asked again")

    async def check(self) -> None:
        for name in {number % 5 for number in range(self.done)}:
            last = max(number for number in range(self.done) if number % 5 == name)
            async with asyncio.timeout(CAUGHT_UP_S):
                await self.read_until(f"{name}", partial(ends_with, b"%d" % last))


class Feed(Work):
    """A stream that feeds a channel of jobs."""

    runtime: Runtime | None = None

    async def prepare(self) -> None:
        await self.stream()
        self.database = self.directory / f"{self.name}.db"
        database = open_database(f"sqlite:///{self.database}", threads=2)
        self.runtime = Runtime(database, Options())
        await self.runtime.start()
        self.http = http_of(self.runtime)
        self.world = World(self.http, self.runtime, None)  # type: ignore[arg-type]
        await self.world.define()
        servers = ",".join(self.js.connection.servers)
        config = FeedConfig(channel="c", stream=self.name, url=servers, batch=50)
        self.helpers = [asyncio.create_task(feed_channel(self.runtime, config))]

    async def run(self) -> None:
        while not self.stopping.is_set():
            await self.js.publish(
                f"{self.name}.a", b"%d" % self.done, msg_id=f"{self.done}", timeout=2
            )
            self.done += 1
            await elapse(0.1, PACE)

    async def check(self) -> None:
        async def is_whole() -> bool:
            assert not any(task.done() for task in self.helpers), self.helpers
            return await self.stored_jobs() == [*range(self.done)]

        try:
            await until(is_whole, "not all became jobs", within=ALL_S)
        except AssertionError as error:
            error.add_note(await self.report(await self.stored_jobs()))
            raise

    async def stored_jobs(self) -> list[int]:
        """The numbers in all messages of the channel that have a job."""
        with closing(sqlite3.connect(self.database)) as connection:
            rows = connection.execute(
                "SELECT message.payload FROM job JOIN message ON message.seq = job.message_seq"
            )
            return sorted(int(payload) for (payload,) in rows)

    async def report(self, payloads: list[int]) -> str:
        """What is missing or double, and what the servers say of the consumer that should bring it."""
        stream = await self.js.stream(self.name)
        consumers = [consumer async for consumer in stream.consumers()]
        missing = sorted({*range(self.done)} - {*payloads})
        return f"{len(payloads)} of {self.done}; missing {missing}; {consumers}; {self.helpers}"

    async def end(self) -> None:
        await super().end()
        if self.runtime is not None:
            await self.http.aclose()
            await self.runtime.close()


WORK: dict[str, type[Work]] = {
    "windowed": Windowed,
    "fast": Fast,
    "awaited": Awaited,
    "batches": Batches,
    "keys": Keys,
    "objects": Objects,
    "feed": Feed,
}
