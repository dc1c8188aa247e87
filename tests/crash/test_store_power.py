"""The power goes at any operation: what was acknowledged is there, the rest is a first part of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from crash.store_world import World, come_back, live
from faultfs import Fault, FaultFS, PowerCut
from headrace.errors import StoreError, StoreFailedError, StoreFullError
from portions import portion, some

SEEDS_PER_TEST = portion(25, 4)


class TellingWorld(World):
    """A world that flushes most of the time, as a broker does, and whose metadata speaks of its messages."""

    def step(self) -> None:
        if self.streams and self.rng.random() < 0.6:
            self.flush()
        else:
            super().step()

    def flush(self) -> None:
        model = self.streams.get("A")
        if model is not None:
            self.append("A", 1)
            self.say(b"%d %d" % (id(model), model.last))
        super().flush()

    def say(self, said: bytes) -> None:
        self.storage.meta.put("said", said)
        self.meta_history.append({**self.meta_history[-1], "said": (said, [])})

    def recover(self, fs: FaultFS) -> None:
        known = [id(models.get("A")) for models in (self.acked_streams, self.streams)]
        super().recover(fs)
        which, last = map(int, self.meta_history[0].get("said", (b"0 0",))[0].split())
        if which in known and "A" in self.streams:
            assert last <= self.streams["A"].last
        self.say(b"0 0")


@pytest.mark.parametrize("block", range(8))
def test_nothing_acknowledged_is_lost_whenever_the_power_goes(block: Any) -> None:
    for seed in range(block * SEEDS_PER_TEST, (block + 1) * SEEDS_PER_TEST):
        rng = random.Random(seed)
        world = World(seed, FaultFS(wholes=seed % 2 == 1))
        world.open()
        for _ in range(3):
            faults: list[Fault] = ["crash", "crash after"]
            fault = rng.choice(faults)
            world.fs.fail(world.fs.operations + rng.randrange(1, 250), fault)
            live(world, 120)
            come_back(world, rng)


@pytest.mark.parametrize("block", range(4))
def test_metadata_never_speaks_of_messages_that_went_with_the_power(block: int) -> None:
    for seed in range(block * SEEDS_PER_TEST, (block + 1) * SEEDS_PER_TEST):
        rng = random.Random(seed)
        world = TellingWorld(seed, FaultFS(wholes=seed % 2 == 1))
        world.open()
        for _ in range(3):
            faults: list[Fault] = ["crash", "crash after"]
            world.fs.fail(world.fs.operations + rng.randrange(1, 400), rng.choice(faults))
            live(world, 200)
            come_back(world, rng)


@pytest.mark.parametrize("wholes", [False, True])
def test_every_operation_of_one_workload_is_a_place_where_the_power_may_go(
    wholes: bool,
) -> None:
    def run(fs: FaultFS) -> World:
        world = World(77, fs)
        try:
            world.open()
        except PowerCut:
            return world
        live(world, 60)
        return world

    lived = run(FaultFS(wholes=wholes))
    assert bool(lived.storage._writer.syncing.whole) is wholes
    operations = lived.fs.operations
    assert operations > 150
    beginning = 5 * wholes
    for number in some(range(1, operations + 1), 11, beginning):
        fs = FaultFS(wholes=wholes)
        fs.fail(number, "crash after" if number % 2 else "crash")
        world = run(fs)
        come_back(world, random.Random(number))


@pytest.mark.parametrize("kinds", [["enospc", "short"], ["eio"], ["enospc", "eio", "short"]])
def test_refused_batches_leave_nothing_and_failed_ones_make_the_store_read_only(
    kinds: list[Fault],
) -> None:
    for seed in range(portion(40, 8)):
        rng = random.Random(seed)
        world = World(seed, FaultFS(wholes=seed % 2 == 1))
        world.open()
        world.flush()
        for _ in range(2):
            base = world.fs.operations
            for number in range(1, 300):
                if rng.random() < 0.1:
                    world.fs.fail(base + number, rng.choice(kinds))
            try:
                for _ in range(80):
                    world.step()
                    if rng.random() < 0.1:
                        world.check_open()
            except StoreError:
                assert world.storage.failed is not None
            assert all(isinstance(e, (StoreFullError, StoreFailedError)) for e in world.errors)
            found = world.fs.power_cut(rng) if rng.random() < 0.5 else world.fs.kill()
            world.recover(found)
            world.check_open()


def test_a_full_disk_refuses_messages_and_works_again_when_there_is_room() -> None:
    for seed in range(portion(15, 4)):
        fs = FaultFS(capacity=120_000, wholes=seed % 2 == 1)
        world = World(seed, fs)
        world.open()
        world.flush()
        for round_ in range(4):
            for _ in range(150):
                world.step()
                if not world.errors or world.rng.random() < 0.1:
                    world.check_open()
            fs.capacity = None if round_ % 2 == 0 else 120_000
        world.take_back() if world.storage._poison else None
        fs.capacity = None
        world.flush()
        world.check_open()
        world.recover(fs.kill())
        world.check_open()
        assert world.storage.failed is None


def test_removing_makes_room_on_a_disk_that_is_full() -> None:
    fs = FaultFS(capacity=100_000)
    world = World(1, fs)
    world.open()
    world.storage.create_stream("A")
    world.streams["A"] = type(world).model()
    world.flush()
    while not world.errors:
        world.append("A", 20)
        world.flush()
    store = world.storage.open_stream("A")
    assert isinstance(world.errors[0], StoreFullError)
    world.check_open()
    half = sorted(world.streams["A"].live)[: len(world.streams["A"].live) // 2]
    assert store.remove(half) == len(half)
    for sequence in half:
        del world.streams["A"].live[sequence]
    del world.errors[:]
    world.flush()
    world.append("A", 20)
    world.flush()
    assert world.errors == []
    world.check_open()
    world.recover(fs.kill())
