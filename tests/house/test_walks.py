"""The walks of the architecture page are those that a message takes: by these files, in this order."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from types import FrameType

from headrace import Broker, ConsumerConfig, connect, sync
from headrace.client import Consumer
from headrace.clock import ManualClock
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from jobs_world import World, http_of, jobs_client

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


@cache
def methods() -> dict[str, set[str]]:
    """What each class that the page names has: methods, and names that its body or its methods set."""
    found: dict[str, set[str]] = {}
    named = set(re.findall(r"`([A-Z]\w+)", PAGE))
    for path in SRC.rglob("*.py"):
        text = path.read_text()
        if named.isdisjoint(re.findall(r"\bclass (\w+)", text)):
            continue  # reading all of them as Python takes seconds
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_names_of(node))
    return found


def _names_of(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.id if isinstance(each, ast.Name) else each.attr


def test_each_method_that_the_page_names_is_there() -> None:
    named = re.findall(r"`([A-Z]\w+)\.([a-z_]\w*)\b", PAGE)
    assert len(named) > 5
    known = methods()
    missing = [f"{kind}.{name}" for kind, name in named if name not in known.get(kind, set())]
    assert missing == []


def test_each_class_that_the_page_names_is_there() -> None:
    walks = PAGE[PAGE.index("## Walks") : PAGE.index("Rules of these paths")]
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", walks))
    assert len(named) > 10
    assert named - methods().keys() == set()


def files_of(walk: str) -> list[list[str]]:
    """The files that each step of a walk names."""
    text = PAGE.partition(f"### {walk}")[2].partition("\n##")[0].partition("\nRules of")[0]
    steps = re.split(r"(?m)^\d+\. ", text)[1:]
    return [re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", step) for step in steps]


@contextmanager
def entered(room: str = "broker/") -> Iterator[list[str]]:
    """The files of a room whose functions are called meanwhile on this thread, call by call."""
    found: list[str] = []
    sys.setprofile(noting(found, room))
    try:
        yield found
    finally:
        sys.setprofile(None)


def noting(found: list[str], room: str) -> Callable[[FrameType, str, object], None]:
    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and f"/headrace/{room}" in name:
            found.append(name)

    return note


def check(walk: str, found: list[str]) -> None:
    """Each file that the walk names is entered, after the files of the steps before."""
    begins = -1
    for step in files_of(walk):
        places = {
            name: next(
                (at for at, path in enumerate(found) if at > begins and path.endswith(f"/{name}")),
                None,
            )
            for name in step
        }
        assert None not in places.values(), f"not entered after the step before: {places}"
        begins = min((at for at in places.values() if at is not None), default=begins)


async def test_a_message_takes_the_walks_of_the_page(tmp_path: Path) -> None:
    """Over a socket: published, pulled, acknowledged, with a work queue that lets go of it then."""
    async with Broker(store_dir=tmp_path) as broker, await connect(broker.client_url) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s.>"], retention="workqueue")
        consumer = await stream.create_consumer(name="c")
        waiting = asyncio.create_task(consumer.fetch(1, max_wait=60))
        await until_pulled(consumer)
        with entered() as found:
            await js.publish("s.a", b"x", msg_id="1", expected_stream="S")
        check("A publish, from PUB to PubAck", found)
        for message in await waiting:
            await message.ack_sync()
        await js.publish("s.b", b"x")
        with entered() as found:
            [message] = await consumer.fetch(1, max_wait=60)
        check("A pull, from request to MSG", found)
        with entered() as found:
            await message.ack_sync()
        check("An acknowledgement", found)
        assert (await stream.info()).state.messages == 0


async def until_pulled(consumer: Consumer) -> None:
    while not (await consumer.info()).num_waiting:
        await asyncio.sleep(0)


async def test_what_comes_takes_the_walk_of_the_page_to_the_handler_of_a_group(
    tmp_path: Path,
) -> None:
    called = asyncio.Event()
    calls: list[str] = []
    walks: list[list[str]] = []

    async def handle(message: GroupMessage) -> None:
        if message.payload == b"measured":
            walks.append(calls[:])
        message.ack()
        called.set()

    async with Broker(store_dir=tmp_path) as broker, await connect(broker.client_url) as near:
        js = near.jetstream()
        await js.create_stream(name="S", subjects=["s.*"])
        filters = [PartitioningFilter("s.*", (1,))]
        await elastic.create(js, "S", "g", 1, partitioning_filters=filters, members=["a"])
        config = ConsumerConfig(max_ack_pending=10)
        async with elastic.join(js, "S", "g", "a", handle, config):
            for payload in (b"first", *[b"measured"] * 5):
                called.clear()
                with entered("") as calls:
                    await js.publish("s.a", payload)
                    await called.wait()
    for walk in walks:
        handed_out = max(
            at for at, name in enumerate(walk) if name.endswith("/client/net/session.py")
        )
        del walk[:handed_out]
        check("A call of a group's handler, from what came", walk)
    # Beside those of the walk: what is asked of the message (place, headers), of the lease, and of the pull.
    # Whatever else the loop does meanwhile, such as a heartbeat, is not in all of them.
    assert len(set.intersection(*map(set, walks))) <= 16


async def test_a_claim_takes_the_walk_of_the_page(tmp_path: Path) -> None:
    """The service in this process; what the database's thread calls is noted, too."""
    database = open_database(f"sqlite:///{tmp_path / 'jobs.db'}", threads=1)
    runtime = Runtime(database, Options())
    await runtime.start()
    try:
        async with http_of(runtime) as http, jobs_client(runtime) as client:
            world = World(http, runtime, ManualClock())
            await world.define()
            await world.broadcast("x")
            queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
            with entered("jobs/") as found:
                await database.write(lambda tx: sys.setprofile(noting(found, "jobs/")))
                found.clear()
                assert await queue.claim(1)
            await database.write(lambda tx: sys.setprofile(None))
    finally:
        await runtime.close()
    check("A claim of jobs, from its request", found)


def test_a_batch_of_spark_takes_the_walks_of_the_page(tmp_path: Path) -> None:
    """What Spark calls in its driver and in a task, called here."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    from headrace.spark.source import JetStreamDataSource

    schema = StructType([StructField("data", BinaryType()), StructField("sequence", LongType())])
    with sync.Broker(store_dir=tmp_path) as broker, sync.connect(broker.client_url) as near:
        js = near.jetstream()
        js.create_stream(name="S", subjects=["s.*"])
        for _ in range(3):
            js.publish("s.a", b"x")
        reader = JetStreamDataSource({"servers": broker.client_url, "stream": "S"}).streamReader(
            schema
        )
        reader.hands_over = False
        start = reader.initialOffset()
        with entered("spark/") as found:
            end = reader.latestOffset(start, ReadAllAvailable())
            slices = reader.partitions(start, end)
        check("A batch of Spark, from offsets to slices", found)
        with entered("spark/") as found:
            rows = [row for each in slices for row in reader.read(each)]
        check("A batch of Spark, from a slice to rows", found)
        reader.stop()
    assert sum(batch.num_rows for batch in rows) == 3


def test_the_walks_name_files() -> None:
    publish, pull, ack, call, claim, slices, rows = [
        len(set(chain.from_iterable(files_of(walk))))
        for walk in re.findall(r"(?m)^### (.*)$", PAGE[PAGE.index("## Walks") :])[:7]
    ]
    assert 7 <= publish <= 10
    assert 6 <= pull <= 8
    assert ack >= 1
    assert call == claim == rows == 5
    assert slices == 4
