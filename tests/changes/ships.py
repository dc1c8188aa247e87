"""A stream that numbers its subjects, and the static group that reads it: its instances change, its members
are others, and the stream gets other partitions while it is published to.

The number of a message says whether it was handled; where it lies changes. A publish that had no answer may
be stored by the former stream and, as ids are forgotten at the switch, by the next one: it may come twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from changes.traffic import SETTINGS, Work
from headrace import StreamConfig, SubjectTransformConfig
from headrace.cli import main
from headrace.errors import (
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    StreamNotFoundError,
)
from headrace.groups import GroupMessage, GroupNotFoundError, Membership, static
from headrace.groups.errors import MemberNotActiveError
from headrace.groups.record.records import Layout, StaticGroup
from headrace.groups.server.consumers import consumers_of

GROUP = "packing"
KEYS = 4
_LANE = "ships"
_NO_CONSUMER = 10014
_LOOK_S = 0.1
_LAYOUTS: tuple[Layout, ...] = ("interoperable", "per_partition")


@dataclass
class Ships:
    """The stream as it is now, and who reads it."""

    work: Work
    made: int = 0
    partitions: int = 3
    names: tuple[str, ...] = ("x", "y")
    layout: Layout = "per_partition"
    joined: dict[tuple[str, int], Membership[StaticGroup]] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether anybody publishes; else nothing comes, as members are others."""

    under_way: int = 0
    first: int = 1

    @property
    def stream(self) -> str:
        return f"SHIPS{self.made}"

    async def set_up(self) -> None:
        """The stream, the group, and two instances of each member."""
        js, dest = self.work.js, f"{{{{partition({self.partitions},1)}}}}.ships.{{{{wildcard(1)}}}}"
        await js.create_stream(
            StreamConfig(
                name=self.stream,
                subjects=("ships.*",),
                subject_transform=SubjectTransformConfig(src="ships.*", dest=dest),
                allow_direct=True,
            )
        )
        await self._begin(1)
        self.taken.set()

    async def _begin(self, first: int) -> None:
        """The group on the stream, from a sequence on; again after a failure."""
        await static.create(
            self.work.js,
            self.stream,
            GROUP,
            self.partitions,
            members=self.names,
            layout=self.layout,
            start=first,
        )
        for name in self.names:
            for instance in range(2):
                await self._join(name, instance)

    async def _join(self, name: str, instance: int) -> None:
        if (name, instance) in self.joined:
            return

        def report(error: Exception) -> None:
            self.work.say(f"member {name} of {GROUP}: {error}", _LANE)

        joined = static.join(
            self.work.js, self.stream, GROUP, name, self._handle, SETTINGS, on_error=report
        )
        self.joined[name, instance] = await joined.start()
        self.tasks.append(asyncio.create_task(self._watch(name, instance, joined)))

    async def _handle(self, message: GroupMessage) -> None:
        await self.work.handle(_LANE, message)

    async def _watch(self, name: str, instance: int, joined: Membership[StaticGroup]) -> None:
        why: HeadraceError | None = None
        try:
            await joined.wait()
        except HeadraceError as error:
            why = error
        if self.joined.get((name, instance)) is joined and not self.work.over.is_set():
            self.work.wrong.append(f"ended: member {name} of {GROUP}: {why!r}")

    async def _leave(self, name: str, instance: int) -> None:
        if (joined := self.joined.pop((name, instance), None)) is not None:
            try:
                await joined.leave()
            except HeadraceError as error:
                self.work.say(f"member {name} of {GROUP} left: {error}", _LANE)

    async def leave_all(self) -> None:
        """Every instance ends by our wish."""
        for name, instance in [*self.joined]:
            await self._leave(name, instance)

    async def publish(self, key: str) -> None:
        """One message after the other, each until it is stored."""
        work, lane = self.work, self.work.lanes[_LANE]
        while not work.over.is_set() and not work.quiet.is_set():
            if not self.taken.is_set():
                await work.rest(_LOOK_S)
                continue
            self.under_way += 1
            try:
                await self._store(key, lane.begin(key))
            finally:
                self.under_way -= 1
            await work.rest(work.jitter.uniform(0.5, 1.5) * work.pace_s)

    async def _store(self, key: str, number: int) -> None:
        work, lane = self.work, self.work.lanes[_LANE]
        while not work.over.is_set():
            try:
                text = b"%d" % number
                await work.js.publish(key, text, msg_id=f"{key} {number}", timeout=2.0)
            except NoRespondersError as error:
                work.say(f"{key}: {error}", _LANE)  # no stream has it
            except HeadraceError as error:
                lane.doubt(key, number)
                work.say(f"{key}: {error}", _LANE)
            else:
                lane.store(key, number, time.monotonic())
                return
            await work.rest(2 * _LOOK_S)

    # Changes

    def draw(self) -> tuple[int, tuple[str, ...], Layout]:
        """Other partitions, members who all have some, and a layout."""
        random = self.work.random
        count = random.choice([each for each in range(1, 7) if each != self.partitions])
        names = random.sample(["x", "y", "z", "w"], random.randint(1, min(4, count)))
        return count, tuple(sorted(names)), random.choice(_LAYOUTS)

    def step_down(self) -> Callable[[], Awaitable[object]]:
        """The instance of a member that is active stands by."""
        name = self.work.random.choice(self.names)

        async def deed() -> None:
            with contextlib.suppress(MemberNotActiveError):
                await static.step_down(self.work.js, self.stream, GROUP, name)

        return deed

    def roll(self) -> Callable[[], Awaitable[object]]:
        """An instance of a member is restarted."""
        random = self.work.random
        name, instance = random.choice(self.names), random.randrange(2)

        async def deed() -> None:
            await self._leave(name, instance)
            await self._join(name, instance)

        return deed

    def other_members(self) -> Callable[[], Awaitable[object]]:
        """The group is made anew for others, behind what is handled, while nothing is published."""
        random = self.work.random
        names = tuple(
            sorted(random.sample(["x", "y", "z"], random.randint(1, min(3, self.partitions))))
        )
        layout = random.choice(_LAYOUTS)

        async def deed() -> None:
            self.taken.clear()  # until it is done, however often it is begun
            while self.under_way:
                await self.work.rest(_LOOK_S)
            self.work.say(f"group {GROUP} gets other members", _LANE)
            stream = await self.work.js.stream(self.stream)
            last = (await stream.info()).state.last_seq
            await self._end(self.stream)
            self.names, self.layout = names, layout
            await self._begin(last + 1)
            self.work.say(f"group {GROUP} has other members", _LANE)
            self.taken.set()

        return deed

    def repartition(self) -> Callable[[], Awaitable[object]]:
        """The stream gets other partitions under traffic, and the group is made anew on it."""
        old, (count, names, layout) = self.made, self.draw()
        url = self.work.server.process.url
        former, new = f"SHIPS{old}", f"SHIPS{old + 1}"

        async def deed() -> None:
            if self.made == old:
                self.work.say(f"stream {former} is being repartitioned to {count}", _LANE)
                command = ["stream", "repartition", former, new, str(count)]
                options = ["--force", "--server", url]
                if status := await asyncio.to_thread(main, [*command, *options]):
                    raise HeadraceError(f"stream repartition {former} {new} ended with {status}")
                last = (await (await self.work.js.stream(former)).info()).state.last_seq
                await self._end(former)
                self.made, self.partitions, self.names, self.layout = old + 1, count, names, layout
                self.first = last + 1
            await self._begin(self.first)
            with contextlib.suppress(StreamNotFoundError):
                await self.work.js.delete_stream(former)
            self.work.say(f"group {GROUP} reads {new} now", _LANE)

        return deed

    async def _end(self, stream: str) -> None:
        """The group has handled all there is, its instances leave, and it is deleted; also again."""
        js = self.work.js
        try:
            group = await static.get(js, stream, GROUP)
        except GroupNotFoundError:
            group = None
        if group is not None and self.joined:  # else it was drained, and they have left
            while not self.work.over.is_set() and not await self._is_drained(group):
                self.work.say(f"group {GROUP} handles what is left in {stream}", _LANE)
                await self.work.rest(_LOOK_S)
        await self.leave_all()
        with contextlib.suppress(GroupNotFoundError):
            await static.delete(js, stream, GROUP)

    async def _is_drained(self, group: StaticGroup) -> bool:
        """Whether each of its consumers has had everything, and has it acknowledged."""
        stream = await self.work.js.stream(group.stream)
        for name in {name for each in consumers_of(group).values() for name in each}:
            try:
                info = await (await stream.consumer(name)).info()
            except JetStreamApiError as error:
                if error.err_code != _NO_CONSUMER:
                    raise
                return False  # its member is about to make it
            if info.num_pending or info.num_ack_pending:
                return False
        return True
