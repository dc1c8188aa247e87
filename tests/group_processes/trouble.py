"""Random events in the life of a group, by a seed: what is done to members, servers and the record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from group_processes.crowd import Crowd, Worker
from group_processes.places import Lines, Place
from group_processes.verbs import REFUSALS, OurVerbs, Verbs
from headrace.client import JetStream
from headrace.groups import MemberMapping, elastic
from waiting import until

__all__ = ["Trouble", "events_of"]

INSTANCES = 2  # of each member
STALLED_S = 40.0
VERB_S = 30.0  # verbs are tried again while servers come back


@dataclass
class _Instance:
    worker: Worker
    lines: Lines


class Trouble:
    """Plays events, one after the other; what heals by itself does so in the background.

    Args:
        seed: decides what happens.
        members: names of all members there can be; each has two instances.
        verbs: of whom the record's changes are asked, by chance; ours if nobody else is named.
        beside: one of the two instances of each member is of the other implementation.
    """

    def __init__(
        self,
        seed: int,
        js: JetStream,
        crowd: Crowd,
        place: Place,
        group: str,
        members: list[str],
        *,
        verbs: Sequence[Verbs] = (),
        beside: bool = False,
    ) -> None:
        self._chance = random.Random(seed)
        self._js = js
        self._crowd = crowd
        self._place = place
        self._group = group
        self._members = members
        self._beside = beside
        task = crowd.task
        self._verbs = verbs or [OurVerbs(js, task.kind, task.stream, group)]
        self._instances: list[_Instance] = []
        self._healing: set[asyncio.Task[None]] = set()
        self._in_group = [members[0]]
        self.played: list[str] = []

    # Life

    async def begin(self) -> None:
        for member in self._members:
            for number in range(INSTANCES):
                self._start(member, peer=self._beside and number > 0)
        await self._crowd.until_joined(*(each.worker for each in self._instances))

    def _start(self, member: str, *, peer: bool) -> None:
        lines = Lines(self._place.urls)
        worker = self._crowd.start(member, peer=peer, url=lines.urls)
        self._instances.append(_Instance(worker, lines))

    async def play(self, events: int, kinds: Sequence[Event]) -> None:
        """So many events, each followed by some progress, or at once by the next one. All kinds are played
        before one comes again."""
        stream = self._crowd.task.stream
        left: list[Event] = []
        for _ in range(events):
            if not left:
                left = [*kinds]
                self._chance.shuffle(left)
            event = left.pop()
            self.played.append(event.__name__)
            self._crowd.note(f"event:{event.__name__}", "test")
            await event(self, stream)
            await self._crowd.until_handled(self._chance.choice([0, 5, 40]), within=STALLED_S)

    async def end(self) -> None:
        """All wounds healed."""
        while self._healing:
            await asyncio.gather(*self._healing)

    async def stop(self) -> None:
        """Everybody leaves; who was just started, when it has joined: before, it does not listen to that."""
        await self._crowd.until_joined(*(each.worker for each in self._instances))
        for each in self._instances:
            if each.worker.is_alive:
                await self._crowd.stop(each.worker)

    def close(self) -> None:
        for task in self._healing:
            task.cancel()
        for each in self._instances:
            each.lines.close()

    # Members hurt

    def _some_instance(self) -> _Instance | None:
        """One that nothing is done to at the moment; rather the one who works."""
        owner = self._crowd.owner()
        well = [e for e in self._instances if self._crowd.is_well(e.worker)]
        working = [each for each in well if each.worker is owner]
        if working and self._chance.random() < 0.6:
            return working[0]
        return self._chance.choice(well) if well else None

    def _later(self, heal: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(heal())
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    def _out_for(self) -> float:
        return self._crowd.task.ack_wait * self._chance.uniform(0.5, 2.5)

    async def kill(self, stream: str) -> None:
        if each := self._some_instance():
            self._crowd.kill(each.worker)
            self._again(each)

    async def leave(self, stream: str) -> None:
        if each := self._some_instance():
            await self._crowd.stop(each.worker)
            self._again(each)

    def _again(self, each: _Instance) -> None:
        """The member has another instance soon."""
        self._instances.remove(each)
        each.lines.close()
        pause = self._chance.uniform(0, 1)

        async def start() -> None:
            await asyncio.sleep(pause)
            self._start(each.worker.task.member, peer=each.worker.is_peer)

        self._later(start)

    async def freeze(self, stream: str) -> None:
        if each := self._some_instance():
            pause = self._out_for()
            self._crowd.freeze(each.worker)

            async def thaw() -> None:
                await asyncio.sleep(pause)
                self._crowd.thaw(each.worker)

            self._later(thaw)

    async def cut(self, stream: str) -> None:
        if each := self._some_instance():
            pause = self._out_for()
            self._crowd.cut_off(each.worker)
            each.lines.cut()

            async def mend() -> None:
                await asyncio.sleep(pause)
                self._crowd.mended(each.worker)
                each.lines.mend()

            self._later(mend)

    # Servers

    async def restart(self, stream: str) -> None:
        self._crowd.servers_out()
        await self._place.restart(self._chance)
        self._crowd.servers_back()

    # The record

    async def step_down(self, stream: str) -> None:
        member = self._chance.choice(self._in_group)
        try:
            await self._chance.choice(self._verbs).step_down(member)
        except REFUSALS as error:  # nobody is active, or the consumer is being made anew
            self._crowd.note(f"step_down:{type(error).__name__}", "test")

    async def add(self, stream: str) -> None:
        member = self._chance.choice(self._members)
        if member not in self._in_group:
            self._in_group.append(member)
        await self._verb(self._set_members(stream))

    async def drop(self, stream: str) -> None:
        if len(self._in_group) > 1:
            self._in_group.remove(self._chance.choice(self._in_group))
        await self._verb(self._set_members(stream))

    def _set_members(self, stream: str) -> Callable[[], Awaitable[object]]:
        verbs = self._chance.choice(self._verbs)

        async def change() -> None:
            group = await elastic.get(self._js, stream, self._group)
            if group.member_mappings:
                await verbs.delete_mappings()
                group = await elastic.get(self._js, stream, self._group)
            if new := sorted({*self._in_group} - {*group.members}):
                await verbs.add(new)
            if old := sorted({*group.members} - {*self._in_group}):
                await verbs.drop(old)

        return change

    async def map(self, stream: str) -> None:
        async def change() -> None:
            group = await elastic.get(self._js, stream, self._group)
            await verbs.set_mappings(mappings(group.max_members))

        def mappings(partitions: int) -> list[MemberMapping]:
            owners = {number: names[number % len(names)] for number in range(partitions)}
            return [
                MemberMapping(name, tuple(n for n, owner in owners.items() if owner == name))
                for name in names
                if name in owners.values()
            ]

        verbs = self._chance.choice(self._verbs)
        names = self._chance.sample(self._members, self._chance.randint(1, len(self._members)))
        self._in_group = names
        await self._verb(change)

    async def _verb(self, change: Callable[[], Awaitable[object]]) -> None:
        async def done() -> bool:
            try:
                await change()
            except REFUSALS as error:
                self._crowd.note(f"verb:{type(error).__name__}", "test")
                return False
            return True

        await until(done, "the record could not be changed", within=VERB_S)


Event = Callable[[Trouble, str], Awaitable[None]]
MEMBERS_HURT: list[Event] = [
    Trouble.kill,
    Trouble.kill,
    Trouble.leave,
    Trouble.freeze,
    Trouble.freeze,
    Trouble.cut,
    Trouble.step_down,
]
ELASTIC: list[Event] = [Trouble.add, Trouble.add, Trouble.drop, Trouble.map]


def events_of(kind: str, *, restarts: bool = True) -> list[Event]:
    """What can happen to a group of this kind, the servers' restarts included or not."""
    changes = ELASTIC if kind == "elastic" else []
    return [*MEMBERS_HURT, *([Trouble.restart] if restarts else []), *changes]
