"""Who makes the group and changes it: a process of its own, that repeats what it got no answer to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, JetStreamApiError
from headrace.groups import GroupError, MemberMapping, PartitioningFilter, elastic, static
from headrace.groups.record.assignment import assign, transforms
from sim.groups.client import connect
from sim.groups.loop import Process

if TYPE_CHECKING:
    from headrace.client.jetstream_context import JetStream
    from sim.groups.world import World

__all__ = ["Admin"]

STREAM, GROUP = "S", "g"
FILTERS = (
    [PartitioningFilter("o.*.*", (1,))],
    [PartitioningFilter("*.*.*", (2,))],
    [PartitioningFilter(f"o.*.{last}", (1,)) for last in range(3)],
)
"""Ways to take everything, by the same key."""
_GONE = (10014, 10059)


class Admin:
    """See the module. ``busy`` counts what has not come to its end, ``ended`` what has."""

    js: JetStream

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = Process(world.universe, "admin")
        self._rng = random.Random(world.rng.getrandbits(64))
        self.busy = 0
        self.ended = 0
        self._wanted: asyncio.Queue[tuple[str, Callable[[], Awaitable[Any]]]] = asyncio.Queue()
        self.process.create_task(self._work())

    def do(self, what: str, call: Callable[[], Awaitable[Any]]) -> None:
        """Do something after what was asked for before; it is repeated until it is answered."""
        self.busy += 1
        self.process.call_soon(self._wanted.put_nowait, (what, call))

    async def _work(self) -> None:
        world = self._world
        connection = await connect(self.process, world.network, world.host, self._rng)
        self.js = connection.jetstream(timeout=1.0)
        while True:
            what, call = await self._wanted.get()
            world.universe.note("admin", what)
            while not await self._try(what, call):
                await asyncio.sleep(world.pause)
            world.universe.note("admin", what, "done")
            self.busy -= 1
            self.ended += 1

    async def _try(self, what: str, call: Callable[[], Awaitable[Any]]) -> bool:
        """Whether it is done, or cannot be."""
        counts = self._world.ledger.counts
        try:
            await call()
        except (HeadraceError, TimeoutError) as error:
            self._world.universe.note("admin", what, type(error).__name__)
            refused = isinstance(error, GroupError)
            gone = isinstance(error, JetStreamApiError) and error.err_code in _GONE
            if refused or gone:
                counts[f"{what}: refused"] += 1
            return refused or gone
        counts[what] += 1
        return True

    # What it does

    async def make(self) -> None:
        """The stream and the group."""
        cast = self._world.cast
        filters = FILTERS[0]
        if cast.kind == "static":
            (transform,) = transforms(filters, cast.partitions)
            await self.js.create_or_update_stream(
                name=STREAM, subjects=["o.>"], subject_transform=transform
            )
            await static.create(
                self.js,
                STREAM,
                GROUP,
                cast.partitions,
                members=self._world.members,
                layout=cast.layout,
            )
        else:
            await self.js.create_or_update_stream(name=STREAM, subjects=["o.>"])
            await elastic.create(
                self.js,
                STREAM,
                GROUP,
                cast.partitions,
                partitioning_filters=filters,
                members=self._world.members,
                layout=cast.layout,
            )
        self._world.is_made.set()

    async def add(self, member: str) -> None:
        await elastic.add_members(self.js, STREAM, GROUP, [member])

    async def drop(self, member: str) -> None:
        await elastic.drop_members(self.js, STREAM, GROUP, [member])

    async def _settle(self) -> None:
        """Mappings stay while a group is being changed, so that is taken back, or completed."""
        try:
            await elastic.undo_change(self.js, STREAM, GROUP)
        except GroupError:
            await elastic.change(self.js, STREAM, GROUP)

    async def map(self, mappings: list[MemberMapping]) -> None:
        await self._settle()
        await elastic.set_mappings(self.js, STREAM, GROUP, mappings)

    async def unmap(self, members: list[str]) -> None:
        await self._settle()
        await elastic.delete_mappings(self.js, STREAM, GROUP)
        await elastic.add_members(self.js, STREAM, GROUP, members)
        record = await elastic.get(self.js, STREAM, GROUP)
        if others := {*record.members} - {*members}:  # the mapping had been refused
            await elastic.drop_members(self.js, STREAM, GROUP, others)

    async def reform(
        self, partitions: int, filters: int, rng: random.Random, patience: float = 1.0
    ) -> None:
        """Change the group, or give that up: interrupted at some time, and called again."""
        counts = self._world.ledger.counts
        record = await elastic.get(self.js, STREAM, GROUP)
        mappings = None
        if record.member_mappings and record.max_members != partitions:
            mapped = [each.member for each in record.member_mappings]
            dealt = assign(partitions, mapped)
            mappings = [MemberMapping(member, dealt[member]) for member in mapped[:partitions]]
        while patience == 1.0 and rng.random() < 0.4:
            try:
                async with asyncio.timeout(rng.choice((0.0, 0.01, 0.05, 0.3)) * rng.random()):
                    await elastic.change(
                        self.js,
                        STREAM,
                        GROUP,
                        max_members=partitions,
                        partitioning_filters=FILTERS[filters],
                        member_mappings=mappings,
                    )
            except TimeoutError:
                counts["change interrupted"] += 1
            if rng.random() < 0.3:
                try:
                    await elastic.undo_change(self.js, STREAM, GROUP)
                except GroupError:
                    counts["change not undone"] += 1
                else:
                    counts["change undone"] += 1
        try:
            async with asyncio.timeout(patience):
                record = await elastic.get(self.js, STREAM, GROUP)
                if record.change is not None:
                    await elastic.change(self.js, STREAM, GROUP)
                await elastic.change(
                    self.js,
                    STREAM,
                    GROUP,
                    max_members=partitions,
                    partitioning_filters=FILTERS[filters],
                    member_mappings=mappings,
                )
        except TimeoutError:  # it may wait for a member whose dropping was asked for behind it
            again = patience * 2
            self.do("changed", lambda: self.reform(partitions, filters, rng, again))

    async def step_down(self, member: str) -> None:
        kind = static if self._world.cast.kind == "static" else elastic
        self._world.ledger.disturb()
        await kind.step_down(self.js, STREAM, GROUP, member)

    async def delete_a_consumer(self, rng: random.Random) -> None:
        """As somebody may who knows nothing of groups."""
        names = [name async for name in self.js.consumer_names(self.work_stream)]
        if names:
            self._world.ledger.usurp()
            if self._world.cast.kind == "static":
                self._world.ledger.forget()
            await self.js.delete_consumer(self.work_stream, rng.choice(names))
            self._world.ledger.usurp()

    @property
    def work_stream(self) -> str:
        """The stream that the group's consumers read."""
        return STREAM if self._world.cast.kind == "static" else f"{STREAM}-{GROUP}"

    async def left_over(self) -> list[str]:
        """What the group's consumers have not been acknowledged."""
        return [
            f"{info.name}: {info.num_pending} pending, {info.num_ack_pending} unacknowledged"
            async for info in self.js.consumers(self.work_stream)
            if info.num_pending or info.num_ack_pending
        ]
