"""A group of which a query is a member, and the query as Spark calls it; without Spark."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.api.streams import SubjectTransformConfig
from headrace.client import JetStream
from headrace.errors import ConfigurationError
from headrace.groups import PartitioningFilter, elastic
from headrace.groups.message import GroupMessage
from headrace.spark.grouped.query import GroupQuery
from headrace.spark.options import parse_options
from headrace.spark.tasks.read_slice import read_slice

_numbers = itertools.count(1)
GROUP = "work"
KEYS = 12


@dataclass
class Engine:
    """Calls a query as Spark does: what it is told survives it, as in a checkpoint."""

    raw: dict[str, str]
    log: list[tuple[str, int, str]]
    committed: dict[str, Any] | None = None
    planned: tuple[dict[str, Any], dict[str, Any]] | None = None  # written, and not committed
    chance: random.Random | None = None
    query: GroupQuery = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A run of the query, from its checkpoint."""
        self.query = GroupQuery(parse_options(self.raw, streaming=True))
        if self.committed is None:
            try:
                self.committed = json.loads(json.dumps(self.query.initial_offset()))
            except ConfigurationError:
                self.query.close()
                raise

    def crash(self) -> None:
        self.query.close()
        self.start()

    def read(self) -> list[tuple[str, int, int]]:
        """The planned batch's rows: key, number, partition, as the tasks read them."""
        assert self.planned is not None
        options = parse_options(self.raw, streaming=True)
        rows = []
        for piece in self.query.plan(*self.planned):
            wanted = ("subject", "data", "partition")
            for batch in read_slice(options, wanted, piece):
                rows += [
                    (row["subject"], int(row["data"]), row["partition"])
                    for row in batch.to_pylist()
                ]
        return rows

    def next_batch(self) -> bool:
        """Plan a batch; whether there is one."""
        assert self.committed is not None
        end = json.loads(json.dumps(self.query.latest_offset(self.committed)))
        if json.dumps(end) == json.dumps(self.committed):
            return False
        self.planned = (self.committed, end)
        return True

    def commit(self) -> None:
        assert self.planned is not None
        self.committed, self.planned = self.planned[1], None

    def batch(self) -> bool:
        """A whole micro-batch; whether there was one. It may crash anywhere in between, by chance."""
        if not self.next_batch():
            return False
        self._may_crash()
        rows = self.read()
        if self._may_crash():
            assert self.read() == rows
        self.log += [(key, number, "query") for key, number, _ in rows]
        self.commit()
        self._may_crash()
        return True

    def _may_crash(self) -> bool:
        if self.chance is None or self.chance.random() > 0.15:
            return False
        self.crash()
        return True


@dataclass
class Place:
    """A stream with keyed messages, and what became of them, in the order in which it did."""

    js: JetStream
    url: str
    stream: str
    log: list[tuple[str, int, str]] = field(default_factory=list)
    published: int = 0
    engines: list[Engine] = field(default_factory=list)

    async def publish(self, count: int) -> None:
        """So many messages of each key, numbered."""
        for number in range(self.published, self.published + count):
            for key in range(KEYS):
                await self.js.publish(f"{self.stream}.k{key}", b"%d" % number)
        self.published += count

    def handler(self, name: str) -> Any:
        async def handle(message: GroupMessage) -> None:
            self.log.append((message.subject, int(message.payload), name))
            await message.ack_sync()

        return handle

    def engine(self, **options: str) -> Engine:
        raw = {"servers": self.url, "stream": self.stream, "group": GROUP, "pollTimeout": "20ms"}
        self.engines.append(Engine({**raw, **options}, self.log))
        return self.engines[-1]

    def by_key(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for key, number, _ in self.log:
            found.setdefault(key, []).append(number)
        return found

    @property
    def is_done(self) -> bool:
        return len(self.log) >= KEYS * self.published

    def check(self) -> None:
        """Each message once, and those of each key in the order of the stream."""
        assert len(self.by_key()) == KEYS
        for key, numbers in self.by_key().items():
            assert numbers == list(range(self.published)), key

    def handled_by(self, name: str) -> int:
        return sum(who == name for _, _, who in self.log)

    async def left(self) -> int:
        info = await (await self.js.stream(f"{self.stream}-{GROUP}")).info()
        return info.state.messages


@asynccontextmanager
async def a_place(js: JetStream, url: str) -> AsyncIterator[Place]:
    """A new stream. What ran there is closed in the end."""
    stream = f"GROUPED{next(_numbers)}"
    await js.create_stream(
        name=stream, subjects=[f"{stream}.*"], allow_direct=True, storage="memory"
    )
    place = Place(js, url, stream)
    yield place
    for engine in place.engines:
        engine.query.close()
    await js.delete_stream(stream)


def partitioned(stream: str) -> SubjectTransformConfig:
    """The transform by which a static group's stream numbers its messages itself."""
    dest = f"{{{{partition(6,1)}}}}.{stream}.{{{{wildcard(1)}}}}"
    return SubjectTransformConfig(src=f"{stream}.*", dest=dest)


async def make_elastic(place: Place, members: list[str], layout: Any = "interoperable") -> None:
    await elastic.create(
        place.js,
        place.stream,
        GROUP,
        max_members=6,
        partitioning_filters=[PartitioningFilter(f"{place.stream}.*", (1,))],
        layout=layout,
    )
    if members:
        await elastic.add_members(place.js, place.stream, GROUP, members)


async def run_until(engine: Engine, condition: Any) -> None:
    """Micro-batches in a thread of their own, as Spark's process, until the condition holds."""

    given_up = threading.Event()

    def loop() -> None:
        while not (condition() or given_up.is_set()):
            engine.batch()

    try:
        await asyncio.wait_for(asyncio.shield(asyncio.to_thread(loop)), 30)
    finally:
        given_up.set()


async def until_left(place: Place, count: int) -> None:
    """The work queue has so many messages."""
    async with asyncio.timeout(20):
        while await place.left() != count:
            await asyncio.sleep(0)
