"""A group to be measured: its stream, its messages, and its members in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from contenders import ROOT
from group_work import QUIET_NS, Order
from headrace import connect
from headrace.api.streams import StorageKind, SubjectTransformConfig
from headrace.client import JetStream
from headrace.groups import Layout, PartitioningFilter, elastic, static
from newer_python import newer_python_or_reason

__all__ = [
    "FUNCTION",
    "GROUP",
    "OURS",
    "PLAIN",
    "QUEUE",
    "STREAM",
    "THEIRS",
    "Member",
    "World",
    "client_us",
    "interpreter",
    "peer_is_there",
    "rate",
    "world_on",
]

STREAM, GROUP = "ORDERS", "g"
QUEUE = f"{STREAM}-{GROUP}"
OURS, THEIRS, PLAIN = "group_ours.py", "group_theirs.py", "plain"
FUNCTION = "function"  # ours, with a handler that is a plain function
WAIT_S = 120.0


def peer_is_there() -> bool:
    """Whether members of natsio-pcgroups can be run."""
    return isinstance(newer_python_or_reason(), Path)


def interpreter() -> Path:
    """What all members run on: the Python that the other implementation needs, where there is one."""
    found = newer_python_or_reason()
    return found if isinstance(found, Path) else Path(sys.executable)


@dataclass
class Member:
    """A process of members. ``tell`` waits for what it says next."""

    process: asyncio.subprocess.Process

    @classmethod
    async def start(cls, who: str, order: Order) -> Self:
        is_kind = who in (PLAIN, FUNCTION)
        program = OURS if is_kind else who
        command: list[str | Path] = [interpreter(), ROOT / "bench" / program, order.argument()]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'bench'}"}
        process = await asyncio.create_subprocess_exec(
            *command,
            *([who] * is_kind),
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=1 << 26,
        )
        member = cls(process)
        await member.until("joined")
        return member

    async def until(self, what: str) -> Any:
        """The value of the next line that says this."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            while line := await self.process.stdout.readline():
                said, value = json.loads(line)
                if said == what:
                    return value
        raise RuntimeError(f"a member ended before it said {what!r}; what it said is above")

    async def end(self) -> dict[str, Any]:
        """Let it leave; what it counted."""
        self.process.terminate()
        return await self.result()

    async def result(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.until("result")
        await self.process.wait()
        return found


class World:
    """A stream on a server, with a group; made anew for every measurement."""

    def __init__(self, url: str, js: JetStream, partitions: int) -> None:
        self._js = js
        self._partitions = partitions
        self._started: list[Member] = []
        self.order = Order(url, "elastic", STREAM, GROUP, [], 1)

    async def elastic(self, layout: Layout = "interoperable", members: Sequence[str] = ()) -> None:
        await self._js.create_stream(name=STREAM, subjects=["orders.*"])
        filters = [PartitioningFilter("orders.*", (1,))]
        await elastic.create(
            self._js,
            STREAM,
            GROUP,
            self._partitions,
            partitioning_filters=filters,
            members=members,
            layout=layout,
        )

    async def static(self, layout: Layout, members: Sequence[str]) -> None:
        """A group on the stream itself, which must be there."""
        self.order = replace(self.order, kind="static")
        await static.create(
            self._js, STREAM, GROUP, self._partitions, members=members, layout=layout
        )

    async def numbered(self, messages: int, keys: int, storage: StorageKind = "file") -> None:
        """A stream as a static group reads it: the subjects are numbered as the messages come."""
        destination = f"{{{{partition({self._partitions},1)}}}}.orders.{{{{wildcard(1)}}}}"
        await self._js.create_stream(
            name=STREAM,
            subjects=["orders.*"],
            subject_transform=SubjectTransformConfig(src="orders.*", dest=destination),
            storage=storage,
        )
        async with self._js.publisher(window=4_000, deduplicate=False) as publisher:
            await publisher.send_many((f"orders.k{n % keys}", b"x" * 100) for n in range(messages))

    async def fill(self, messages: int, keys: int = 100) -> None:
        """Publish, and wait until all of it is in the group's work queue."""
        payload = b"x" * 100
        async with self._js.publisher(window=4_000, deduplicate=False) as publisher:
            await publisher.send_many((f"orders.k{n % keys}", payload) for n in range(messages))
        while await self.left() < messages:
            await asyncio.sleep(0.005)  # copied by the server, which tells nobody

    async def left(self) -> int:
        """What waits in the work queue."""
        return (await (await self._js.stream(QUEUE)).info()).state.messages

    async def until_empty(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while await self.left():
                await asyncio.sleep(0.005)

    async def until_alone(self) -> None:
        """Until one member's consumer has all partitions, and delivers; and long enough for the others to
        notice that they were quiet."""
        quiet_s = 1.5 * QUIET_NS / 1e9
        queue = await self._js.stream(QUEUE)

        async def alone() -> bool:
            found = [consumer async for consumer in queue.consumers()]
            return (
                len(found) == 1
                and len(found[0].config.filter_subjects) == self._partitions
                and found[0].delivered.consumer_seq > 0
            )

        async with asyncio.timeout(WAIT_S):
            while not await alone():
                await asyncio.sleep(0.005)
        await asyncio.sleep(quiet_s)

    async def plain_consumer(self, stream: str, max_ack_pending: int) -> None:
        """A consumer that delivers what a member with all partitions gets."""
        await self._js.create_consumer(
            stream,
            durable_name=PLAIN,
            ack_policy="explicit",
            max_ack_pending=max_ack_pending,
            filter_subjects=[f"{number}.orders.*" for number in range(self._partitions)],
        )

    async def pace(self, messages: int, seconds: float) -> None:
        """Publish one message after the other, each with its time, with a pause in between."""
        for number in range(messages):
            await asyncio.sleep(seconds)
            payload = b"%d" % time.monotonic_ns()
            await self._js.publish(f"orders.k{number % 100}", payload)

    async def change(self, members: Sequence[str]) -> int:
        """Make these the members; the time before the call."""
        at = time.monotonic_ns()
        group = await elastic.get(self._js, STREAM, GROUP)
        if new := [name for name in members if name not in group.members]:
            await elastic.add_members(self._js, STREAM, GROUP, new)
        if old := [name for name in group.members if name not in members]:
            await elastic.drop_members(self._js, STREAM, GROUP, old)
        return at

    async def member(self, who: str, members: Sequence[str], **values: Any) -> Member:
        started = await Member.start(who, replace(self.order, members=[*members], **values))
        self._started.append(started)
        return started

    def kill(self) -> None:
        """End the members that are still there, as after a failure."""
        for member in self._started:
            if member.process.returncode is None:
                member.process.kill()


@asynccontextmanager
async def world_on(url: str, partitions: int) -> AsyncIterator[World]:
    """A world whose streams are gone afterwards."""
    async with connect(url) as connection:
        js = connection.jetstream()
        world = World(url, js, partitions)
        try:
            yield world
        finally:
            world.kill()
            for name in [name async for name in js.stream_names()]:
                await js.delete_stream(name)


def client_us(result: dict[str, Any]) -> float:
    """Processor time of a member per message, in microseconds."""
    return 1e6 * float(result["cpu"]) / int(result["handled"])


def rate(results: Sequence[dict[str, Any]]) -> float:
    """Messages per second of all together, from the first to the last one."""
    first = min(each["first"] for each in results if each["handled"])
    last = max(each["last"] for each in results if each["handled"])
    handled: int = sum(each["handled"] for each in results)
    return (handled - 1) / (int(last - first) / 1e9)
