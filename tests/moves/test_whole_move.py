"""All of a broker is moved while programs publish, as the page on moves says, and everything is counted.

A worker's consumer, an elastic group, a feed of jobs with their worker, and queries of Spark read one stream.
What each has got, before and after together, is every message once and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import peers
from headrace.client import JetStream, JetStreamMessage
from headrace.errors import HeadraceError
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from jobs_world import held
from waiting import until

from .keepers import JobsFeed, SparkStream
from .world import World, command, world_on

KEYS = 4
PHASE = 60
WITHIN_S = 90.0
PAGE = Path(__file__).resolve().parents[2] / "docs" / "outgrow.md"

PIPELINE = """[pipeline]
name = "totals"
checkpoint = "checkpoint"
[sources.numbers]
options = {{ stream = "S", servers = "{url}" }}
[views.totals]
sql = "SELECT count(*) AS many, sum(CAST(CAST(data AS string) AS int)) AS total FROM numbers"
[sinks.totals]
from = "totals"
mode = "complete"
python = "kept.py:take"
"""
KEPT = """
import json
from pathlib import Path


def take(rows, number):
    (row,) = rows.collect()
    Path(__file__).with_name("totals.json").write_text(json.dumps([row["many"], row["total"]]))
"""


class Producer:
    """Publishes numbers, one after the other, until it is told to wait; each again until it is stored."""

    def __init__(self, js: JetStream) -> None:
        self.js = js
        self.stored = 0
        self._may = asyncio.Event()
        self._rests = asyncio.Event()
        self._may.set()

    async def run(self) -> None:
        while True:
            if not self._may.is_set():
                self._rests.set()
                await self._may.wait()
            number = self.stored
            with contextlib.suppress(HeadraceError):
                await self.js.publish(
                    f"s.{number % KEYS}", b"%d" % number, msg_id=f"number {number}"
                )
                self.stored += 1

    async def wait(self) -> None:
        """It publishes nothing from now on, and has an answer to everything that it has."""
        self._rests.clear()
        self._may.clear()
        await self._rests.wait()

    def go_on(self, js: JetStream) -> None:
        self.js = js
        self._may.set()

    async def reaches(self, count: int) -> None:
        await until(lambda: self.stored >= count, within=WITHIN_S)


class Readers:
    """Everything that reads the stream, while ``at_work``; what each got stays over the move."""

    def __init__(self, world: World, stack: AsyncExitStack) -> None:
        self.world = world
        self.got: dict[str, list[int]] = {"worker": [], "group": [], "jobs": [], "spark": []}
        self.feed = JobsFeed(world, stack)
        self.query = SparkStream(world, stack)
        self.errors: list[Exception] = []

    async def begin(self) -> None:
        js = self.world.js
        await js.create_consumer("S", durable_name="billing")
        by_key = [PartitioningFilter("s.*", (1,))]
        await elastic.create(js, "S", "g", KEYS, partitioning_filters=by_key, members=["a"])
        await self.feed.begin()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Each ends what it has in hand before it leaves."""
        world, got = self.world, self.got

        async def bill(message: JetStreamMessage) -> None:
            got["worker"].append(int(message.payload))
            await message.ack_sync()

        async def handle(message: GroupMessage) -> None:
            got["group"].append(int(message.payload))
            await message.ack_sync()

        jobs = self.feed.feeding
        named = {"url": world.url, "stream": "S", "name": "S"}
        jobs.config = msgspec.structs.replace(jobs.config, **named)
        consumer = await world.js.consumer("S", "billing")
        over = asyncio.Event()
        async with (
            consumer.consume(bill),
            elastic.join(world.js, "S", "g", "a", handle, on_error=self.errors.append),
            jobs.running(),
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(self._do_jobs(over))
            tasks.create_task(self._query(over))
            yield
            over.set()

    async def _do_jobs(self, over: asyncio.Event) -> None:
        jobs = self.feed.feeding.world

        async def some() -> bool:
            claimed = await jobs.claim(20)
            if claimed:
                self.got["jobs"] += [int(each["message"]["payload"]) for each in claimed]
                await jobs.lease("complete", jobs=held(*claimed))
            return over.is_set()

        await until(some, within=WITHIN_S)

    async def _query(self, over: asyncio.Event) -> None:
        while not over.is_set():
            self.got["spark"] += await asyncio.to_thread(self.query._batch)

    async def have(self, count: int) -> None:
        def has(numbers: list[int]) -> bool:
            return len(numbers) >= count

        for name, numbers in self.got.items():
            await until(
                partial(has, numbers),
                f"{name} stands still",
                within=WITHIN_S,
            )

    def count(self, published: int) -> dict[str, tuple[int, int, int]]:
        """Of each reader: how many are lost, came again, and came out of order."""
        found = {}
        for name, numbers in self.got.items():
            times = Counter(numbers)
            late = sum(
                later < earlier
                for key in range(KEYS)
                for earlier, later in pairwise([each for each in numbers if each % KEYS == key])
            )
            lost = published - len(times)
            found[name] = (lost, sum(times.values()) - len(times), late)
        return found


async def to_a_copied_directory(world: World) -> None:
    await asyncio.to_thread(world.server.stop)
    shutil.copytree(world.server.store_dir, world.directory / "copy")
    server = await asyncio.to_thread(
        lambda: peers.start_headrace(world.directory / "there", store_dir=world.directory / "copy")
    )
    await world.turn_to(server)


async def to_a_restored_directory(world: World) -> None:
    await world.all_of_it_to(world.kind)


async def to_nats_server(world: World) -> None:
    await world.all_of_it_to("nats-server")


MOVES: list[Callable[[World], Any]] = [
    to_a_copied_directory,
    to_a_restored_directory,
    to_nats_server,
]


async def pipeline(file: Path, url: str) -> list[int]:
    """Run a pipeline over what is there; how many messages its state has counted, and their sum."""
    file.write_text(PIPELINE.format(url=url))
    file.with_name("kept.py").write_text(KEPT)
    status, said = await command("pipeline", "once", str(file))
    assert status == 0, said
    found: list[int] = json.loads(file.with_name("totals.json").read_text())
    return found


@pytest.mark.parametrize(
    "with_a_pipeline",
    [
        False,
        pytest.param(True, marks=pytest.mark.slow("tests/spark/test_streams_put_back.py")),
    ],
    ids=["", "with a pipeline"],
)
@pytest.mark.parametrize("move", MOVES)
async def test_nothing_is_lost_comes_again_or_is_out_of_order(
    move: Callable[[World], Any], with_a_pipeline: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    async with (
        world_on(tmp_path, "headrace", numbered=False) as world,
        AsyncExitStack() as stack,
    ):
        readers, producer = Readers(world, stack), Producer(world.js)
        await readers.begin()
        publishing = asyncio.create_task(producer.run())
        stack.callback(publishing.cancel)
        async with readers.at_work():
            await producer.reaches(PHASE)
            await readers.have(PHASE // 2)  # there is a backlog
        if with_a_pipeline:
            await producer.wait()
            await pipeline(folder / "totals.toml", world.url)
            producer.go_on(world.js)
            await producer.reaches(producer.stored + PHASE // 2)  # it has a backlog, too
        await producer.wait()
        before = producer.stored
        await move(world)
        if with_a_pipeline:
            folder = folder.rename(tmp_path / "moved pipeline")
        producer.go_on(world.js)
        async with readers.at_work():
            await producer.reaches(before + PHASE)
            await producer.wait()
            await readers.have(producer.stored)
        published = producer.stored
        if with_a_pipeline:
            totals = await pipeline(folder / "totals.toml", world.url)
            assert totals == [published, published * (published - 1) // 2]
    none = (0, 0, 0)
    assert readers.count(published) == dict.fromkeys(readers.got, none)
    assert readers.got["worker"] == list(range(published))
    assert readers.errors == []


def test_the_page_says_the_steps_that_are_tested() -> None:
    steps = PAGE.read_text().partition("## All of a broker")[2].partition("\n## ")[0]
    for words in ("stream backup --all", "stream restore --all", "pipeline", "`url`", "members"):
        assert words in steps
