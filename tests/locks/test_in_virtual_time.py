"""Both kinds of locks in virtual time: real clients, the broker's core, processes frozen and killed."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ConfigurationError, HeadraceError
from headrace.locks.key import KeyLock, bucket_of_locks
from headrace.locks.pinned import PinLock
from headrace.locks.tenure import LockLostError
from sim.groups.client import connect
from sim.groups.host import Host
from sim.groups.loop import Process, Universe
from sim.groups.network import Network

SECONDS = 6.0


class World:
    """A broker and runners that want the same lease."""

    def __init__(self, seed: int, kind: str = "bucket") -> None:
        self.rng = random.Random(seed)
        self.kind = kind
        self.universe = Universe()
        self.network = Network(self.universe, self.rng, 0.002)
        cast: Any = SimpleNamespace(disk=False, pin_handover=True)
        self.host = Host(self.universe, self.network, self.rng, cast)
        self.host.boot()
        self.pause = 0.5  # of virtual time, before whoever failed tries again
        self.runners: list[Runner] = []
        self.tokens: list[int] = []

    def add(self) -> Runner:
        runner = Runner(self, f"runner-{len(self.runners) + 1}")
        self.runners.append(runner)
        return runner

    def run(self, seconds: float) -> None:
        self.universe.run(self.universe.now + seconds)

    def until(self, found: Any, within: float) -> float:
        """Run until it is so; returns the seconds it took."""
        began = self.universe.now
        assert self.universe.run(began + within, found), f"not within {within} s"
        return self.universe.now - began

    def active(self) -> list[Runner]:
        return [each for each in self.runners if each.is_active]

    def won(self, winner: Runner, token: int) -> None:
        """Nobody else may believe that the lease is theirs, not even a frozen one."""
        for other in self.runners:
            if other is not winner and other.believes:
                self.universe.failures.append(f"{winner.name} and {other.name} both have the lease")
        if self.tokens and token <= self.tokens[-1]:
            self.universe.failures.append(f"token {token} after {self.tokens[-1]}")
        self.tokens.append(token)


class Runner:
    """A process that wants the lease, and says when it has it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.universe, name)
        self.lease: Any = None
        self.is_active = False
        self.is_leaving = False
        self.lost: list[str] = []
        self.task = self.process.create_task(self._live())

    @property
    def believes(self) -> bool:
        """Whether it would go on if it looked now; a frozen process looks when it is thawed."""
        return self.is_active and self.lease.is_ours_at(self.world.universe.now)

    async def make(self, js: Any) -> KeyLock | PinLock:
        if self.world.kind == "pinned":
            rng = random.Random(self.world.rng.getrandbits(64))
            return PinLock(js, "LEASES", "orders", self.name, SECONDS, random=rng)
        bucket = await bucket_of_locks(js, "leases", SECONDS)
        return KeyLock(bucket, "orders", self.name, SECONDS, on_trouble=lambda error: None)

    async def _live(self) -> None:
        world = self.world
        connection = await connect(self.process, world.network, world.host, world.rng)
        while not self.is_leaving:
            try:
                async with await self.make(connection.jetstream()) as lease:
                    self.lease = lease
                    while not self.is_leaving:
                        token = await lease.acquire()
                        self.is_active = True
                        world.won(self, token)
                        try:
                            await lease.hold()
                        except LockLostError as error:
                            self.lost.append(str(error))
                        finally:
                            self.is_active = False
            except HeadraceError as error:
                world.universe.note(self.name, repr(error))
                await asyncio.sleep(world.pause)

    def leave(self) -> None:
        self.process.create_task(self._leave())

    async def _leave(self) -> None:
        self.is_leaving = True
        await self.lease.release()
        self.is_active = False
        self.process.kill()

    def kill(self) -> None:
        self.process.kill()
        for wire in self.world.network.wires_of(self.process):
            wire.reset(tells_client=False)
        self.is_active = False


@pytest.fixture(params=["bucket", "pinned"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_world() -> Any:
    made: list[World] = []

    def make(*given: Any) -> World:
        made.append(World(*given))
        return made[-1]

    yield make
    for world in made:
        world.universe.bury()


def test_one_of_two_is_active_and_stays_so(make_world: Any, kind: str) -> None:
    world = make_world(1, kind)
    world.add()
    world.add()
    world.until(lambda: world.active(), 10)
    (first,) = world.active()
    world.run(60)
    assert world.active() == [first]
    assert len(world.tokens) == 1


def test_a_standby_takes_over_at_once_when_the_lease_is_given_back(
    make_world: Any, kind: str
) -> None:
    world = make_world(2, kind)
    first = world.add()
    world.until(lambda: world.active(), 10)
    second = world.add()
    world.run(5)
    first.leave()
    within = 1.0 if kind == "bucket" else SECONDS / 2
    assert world.until(lambda: second.is_active, 10) < within


@pytest.mark.parametrize("delay_ms", range(0, 12, 2))
def test_a_lease_is_given_back_in_the_middle_of_a_renewal_too(
    make_world: Any, delay_ms: int
) -> None:
    world = make_world(7)
    first = world.add()
    world.until(lambda: world.active(), 10)
    second = world.add()
    world.run(5)
    renew, asked = first.lease._renew, []

    async def end_meanwhile() -> None:
        asked.append(world.universe.now)
        first.is_leaving = True
        asyncio.get_running_loop().call_later(delay_ms / 1000, first.task.cancel)
        await renew()

    first.lease._renew = end_meanwhile
    world.until(lambda: asked, 3)
    assert world.until(lambda: second.is_active, 10) < 1.0


def test_a_standby_takes_over_from_the_dead_when_their_time_is_over(
    make_world: Any, kind: str
) -> None:
    world = make_world(3, kind)
    first = world.add()
    world.until(lambda: world.active(), 10)
    second = world.add()
    world.run(5)
    first.kill()
    within = SECONDS + 0.5 if kind == "bucket" else 2.5 * SECONDS
    assert world.until(lambda: second.is_active, 30) < within


def test_who_was_frozen_finds_its_lease_over(make_world: Any, kind: str) -> None:
    world = make_world(4, kind)
    first = world.add()
    world.until(lambda: world.active(), 10)
    second = world.add()
    world.run(5)
    first.process.freeze()
    world.until(lambda: second.is_active, 30)
    first.process.thaw()
    world.until(lambda: not first.is_active, 1)
    assert len(first.lost) == 1
    assert second.is_active


def test_who_is_cut_off_lets_go_before_another_can_have_it(make_world: Any, kind: str) -> None:
    world = make_world(5, kind)
    first = world.add()
    world.until(lambda: world.active(), 10)
    world.add()
    world.run(5)
    world.network.refusing.add(first.name)
    for wire in world.network.wires_of(first.process):
        wire.silence()
    world.until(lambda: not first.is_active, 2 * SECONDS)
    world.network.refusing.clear()
    world.until(lambda: world.active(), 30)


def test_under_random_faults_never_two_at_a_time(make_world: Any, kind: str) -> None:
    for seed in range(6):
        world = make_world(seed, kind)
        rng = random.Random(seed)
        for _ in range(3):
            world.add()
        for _ in range(12):
            misfortune(world, rng)
            world.run(rng.choice((0.5, 2.0, 5.0, 9.0)))
        heal(world)
        world.until(lambda world=world: len(world.active()) == 1, 60)
        assert len(world.tokens) > 1, "something happened"


def misfortune(world: World, rng: random.Random) -> None:
    runner = rng.choice(world.active() or world.runners)
    what = rng.choice(("freeze", "thaw", "kill", "cut", "silence", "broker", "back"))
    world.universe.note(what, runner.name)
    if what == "freeze":
        runner.process.freeze()
    elif what == "thaw":
        for each in world.runners:
            each.process.thaw()
    elif what == "kill" and len(world.runners) < 8:
        runner.kill()
        world.add()
    elif what in ("cut", "silence"):
        for wire in world.network.wires_of(runner.process):
            if what == "cut":
                wire.reset()
            else:
                wire.silence()
    elif what == "broker" and world.host.is_up:
        world.host.kill(power=False)
    elif what == "back" and not world.host.is_up:
        world.host.boot()


def heal(world: World) -> None:
    if not world.host.is_up:
        world.host.boot()
    for each in world.runners:
        if not each.process.is_dead:
            each.process.thaw()


def test_a_bucket_with_another_time_is_refused(make_world: Any) -> None:
    world = make_world(7)
    said: list[str] = []

    async def look() -> None:
        connection = await connect(process, world.network, world.host, world.rng)
        js = connection.jetstream()
        await bucket_of_locks(js, "leases", SECONDS)
        try:
            await bucket_of_locks(js, "leases", 2 * SECONDS)
        except ConfigurationError as error:
            said.append(str(error))

    process = Process(world.universe, "admin")
    process.create_task(look())
    world.run(5)
    (text,) = said
    assert text.startswith("bucket 'leases' removes values after 6 s, and the lease lasts 12 s; ")
