"""Any call of the disk may go wrong once: afterwards everything confirmed is there, or named as lost.

A short life of a whole broker (``faulty_life``) and of a store alone (``store_world``) are lived with each
fault of each of their calls in turn. The suite takes ``HEADRACE_FAULTS`` of them by even steps (40; ``make
test-all`` takes 100);
``HEADRACE_FAULTS=all`` is for all of them, of more lives.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from crash.faulty_life import calls_of, live_with
from crash.store_world import World
from faultfs import FaultFS
from faultplan import FaultPoint, FaultyFiles, every_fault
from headrace.errors import StoreError
from portions import portion
from sim.whole.coverage import watched

FAULTS = os.environ.get("HEADRACE_FAULTS", str(portion(100, 24)))
SEEDS = (31, 63, *range(1, 23)) if FAULTS == "all" else (1, 31, 63)
ENTERED = (
    "segments compacted",
    "segments removed",
    "streams deleted",
    "copies into a mirror",
    "pushes",
)
TOLD_EVERY = 1000
# Not ``punch``: room inside a file is given back on a full disk alone, and the broker of these lives has
# room without end, for a fault to be what stops it. Each of its faults is in broker/store/test_chores.py.
KINDS = {
    "allocate",
    "create",
    "fdatasync",
    "fsync_dir",
    "listdir",
    "mkdir",
    "open",
    "pread",
    "pwrite",
    "rename",
    "size",
    "sync_whole",
    "truncate",
    "unlink",
}
STORE_SEED = 77
STORE_STEPS = 60


def chosen(points: list[tuple[int, FaultPoint]]) -> list[tuple[int, FaultPoint]]:
    """All of them, or as many as wanted: every n-th of each kind, and one of each at least."""
    if FAULTS == "all":
        return points
    step = max(1, len(points) // int(FAULTS))
    points = sorted(points, key=lambda point: point[1].kind)
    by_kind = itertools.groupby(points, key=lambda point: point[1].kind)
    return [point for _, of_kind in by_kind for point in list(of_kind)[::step]]


def faults_of_lives() -> Iterator[tuple[int, FaultPoint]]:
    with watched() as paths:
        calls = {seed: calls_of(seed) for seed in SEEDS}
    assert all(paths[label] for label in ENTERED), paths
    for seed in SEEDS:
        for point in every_fault(calls[seed]):
            yield seed, point


@pytest.mark.timeout(7200)
def test_a_broker_outlives_a_fault_at_any_call_of_its_disk() -> None:
    points = chosen(list(faults_of_lives()))
    lived: Counter[str] = Counter()
    failures: list[str] = []
    gc.disable()  # it costs a fifth
    try:
        for number, (seed, point) in enumerate(points, 1):
            try:
                live_with(seed, point)
            except Exception as error:  # of whatever kind: it is told below
                failures.append(f"seed {seed}, {point}: {error!r}"[:200])
            lived[point.kind] += 1
            if number % 25 == 0:
                gc.collect()
            if number % TOLD_EVERY == 0:
                print(f"{number} of {len(points)} faults, {len(failures)} failures")
    finally:
        gc.enable()
    assert lived.keys() >= KINDS
    told = f"{len(failures)} of {len(points)}:\n" + "\n".join(failures[:20])
    assert not failures, told


# A stream was deleted and made anew on a full disk: the old one came back with the new one's settings.
KEPT = [(10, FaultPoint("pwrite", 7, "ENOSPC"))]


@pytest.mark.parametrize(("seed", "point"), KEPT, ids=str)
def test_a_fault_that_was_not_outlived_once(seed: int, point: FaultPoint) -> None:
    live_with(seed, point)


def store_life(plan: list[FaultPoint]) -> tuple[World, FaultyFiles]:
    """A store lives until the fault has made it read-only, or to the end."""
    files = FaultyFiles(FaultFS(wholes=True), plan)
    world = World(STORE_SEED, files)  # type: ignore[arg-type]
    try:
        world.open()
        for _ in range(STORE_STEPS):
            world.step()
        world.flush()
    except StoreError:
        assert files.hit
    return world, files


def test_a_store_outlives_a_fault_at_any_call_that_changes_something() -> None:
    _, files = store_life([])
    kinds = ("create", "pwrite", "allocate", "truncate", "mkdir", "rename", "unlink")
    points = [
        (STORE_SEED, point)
        for point in every_fault(files.calls, [*kinds, "fdatasync", "sync_whole"])
    ]
    for number, (_, point) in enumerate(chosen(points)):
        if point.what == "lie":
            continue
        world, files = store_life([point])
        assert files.hit == [point]
        files.heal()
        found = files.kill() if number % 2 else files.power_cut(random.Random(number))
        world.recover(found)  # type: ignore[arg-type]
        world.check_open()
