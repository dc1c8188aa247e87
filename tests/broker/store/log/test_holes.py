"""A full disk: what is removed from the head of a stream frees room although it shares a segment."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from faultfs import FaultFS, PowerCut
from faultplan import FaultPoint, FaultyFiles, every_fault
from headrace.broker.store import FileStorage
from headrace.broker.store.index.index import Segment
from headrace.broker.store.io.files import PUNCH_BYTES, LocalFiles
from headrace.broker.store.log.chores import hole_before
from headrace.errors import StoreReadError

CAPACITY = 700_000 + (256 << 10)  # of which the journal takes as much


class Full:
    """A store on a disk that it has filled to the last byte, with one stream in one segment."""

    def __init__(self, capacity: int = CAPACITY, plan: Sequence[FaultPoint] = ()) -> None:
        disk = FaultFS(capacity=capacity)
        self.fs: Any = FaultyFiles(disk, plan) if plan else disk
        self.rng = random.Random(0)
        self.sizes: dict[int, int] = {}
        self.open()
        self.store = self.storage.create_stream("S")
        self.flush()
        while self.publish() is None:
            pass

    def open(self) -> None:
        self.storage = FileStorage(
            "/s", fs=self.fs, threaded=False, segment_bytes=1 << 26, salts=random.Random(1)
        )

    def reopen(self, fs: Any = None) -> None:
        self.fs = self.fs.kill() if fs is None else fs
        self.open()
        self.store = self.storage.open_stream("S")

    def flush(self) -> Exception | None:
        outcomes: list[Exception | None] = []
        self.storage.flush(outcomes.append)
        assert len(outcomes) == 1
        return outcomes[0]

    def publish(self) -> Exception | None:
        size = self.rng.randrange(100, 3_000)
        sequence = self.store.append(b"s.a", b"", b"x" * size, 1)
        error = self.flush()
        if error is None:
            self.sizes[sequence] = size
        return error

    def purge(self, below: int) -> None:
        self.store.purge(None, below)
        assert self.flush() is None
        for sequence in [sequence for sequence in self.sizes if sequence < below]:
            del self.sizes[sequence]

    def check(self) -> None:
        found = self.store.read(1, None, 10_000, 1 << 40, self.store.last_seq)
        assert {m.sequence: len(m.payload) for m in found} == self.sizes
        assert self.storage.report == []

    @property
    def punched(self) -> int:
        return sum(" punch " in f" {line} " for line in self.fs.log)


def publishes(full: Full) -> int:
    """How many messages fit until the disk is full again."""
    count = 0
    while full.publish() is None:
        count += 1
    return count


@pytest.mark.parametrize("restart", ["no", "before the purge", "after the purge"])
def test_purging_half_of_a_segment_makes_room(restart: str) -> None:
    full = Full()
    assert len(full.store.segments) == 1
    half = full.store.first_seq + len(full.sizes) // 2
    if restart == "before the purge":
        full.reopen()
        publishes(full)
    full.purge(half)
    if restart == "after the purge":
        full.reopen()
    count = publishes(full)  # after a restart it is the first refusal that tells of the full disk
    count += publishes(full)
    assert full.punched == 1
    assert count > 0.7 * half
    full.check()
    full.reopen()
    full.check()
    assert publishes(full) >= 0


def test_again_and_again() -> None:
    full = Full()
    total = 0
    for _ in range(6):
        full.purge(full.store.first_seq + len(full.sizes) // 2)
        total += publishes(full)
        full.check()
    assert total * 1_500 > CAPACITY
    full.reopen()
    full.check()


def test_a_disk_without_holes_stays_full() -> None:
    full = Full()
    full.fs.punches = False
    full.purge(full.store.first_seq + len(full.sizes) // 2)
    assert publishes(full) < 30
    full.check()
    full.reopen()
    full.check()


def test_removals_that_lay_in_the_hole_are_said_again() -> None:
    fs = FaultFS(capacity=CAPACITY)
    full = Full.__new__(Full)
    full.fs, full.rng, full.sizes = fs, random.Random(2), {}
    full.open()
    full.store = full.storage.create_stream("S")
    for _ in range(150):
        full.publish()
    for sequence in (140, 145):  # recorded in what is going to be the hole
        full.store.remove([sequence])
        del full.sizes[sequence]
    while full.publish() is None:
        pass
    full.purge(160)
    publishes(full)
    assert full.punched == 1
    full.store.remove([170])
    assert full.flush() is None
    del full.sizes[170]
    full.reopen()
    full.check()


def test_the_power_may_go_at_any_call() -> None:
    full = Full(250_000)
    half = full.store.first_seq + len(full.sizes) // 2
    before = full.fs
    kept = dict(full.sizes)
    first, number, done = before.operations, 0, False
    while not done:
        number += 1
        full = Full(250_000)
        assert full.sizes == kept
        full.fs.fail(full.fs.operations + number, "crash")
        try:
            full.store.purge(None, half)
            full.flush()
            full.publish()
            done = full.fs.operations - first < number
        except PowerCut:
            pass
        for seed in range(2):
            again = Full.__new__(Full)
            again.rng = random.Random(1)
            again.sizes = {}
            again.reopen(full.fs.power_cut(random.Random(seed)))
            found = [finding.what for finding in again.storage.report]
            assert found in ([], ["a torn write at the end was ignored"])  # of the publish
            live = set(again.store.present(range(1, again.store.last_seq + 1)))
            assert {s for s in kept if s >= half} <= live
            assert {s for s in kept if s < half} & live in (set(), {s for s in kept if s < half})
            read = again.store.read(1, None, 10_000, 1 << 40, again.store.last_seq)
            assert {m.sequence for m in read} == live
        assert number < 60
    assert full.punched == 1


@pytest.mark.parametrize("point", [*every_fault({"punch": 1})], ids=str)
@pytest.mark.parametrize("has_power", [True, False])
def test_the_call_may_fail(point: FaultPoint, has_power: bool) -> None:
    full = Full(250_000, [point])
    full.purge(full.store.first_seq + len(full.sizes) // 2)
    kept = dict(full.sizes)
    if full.storage.failed is None:  # that no hole is to be had does no harm
        full.publish()
    assert full.fs.hit == [point]
    assert (full.storage.failed is None) == (point.what == "ENOSPC")
    full.fs.heal()
    full.reopen(None if has_power else full.fs.power_cut(random.Random(3)))
    assert [finding.lost for finding in full.storage.report if finding.lost] == []
    found = full.store.read(1, None, 10_000, 1 << 40, full.store.last_seq)
    held = {m.sequence: len(m.payload) for m in found}
    assert kept.items() <= held.items()
    assert min(held) == min(kept)


def test_a_segment_that_cannot_be_read_now_keeps_its_room() -> None:
    def unreadable(segment: Segment) -> None:
        raise StoreReadError("not now", "path")

    head = Segment(1, 1)
    head.durable, head.load = True, unreadable
    assert hole_before(head, 50, 100) is None


def test_zeros_in_place_of_messages_that_were_not_removed_are_damage() -> None:
    full = Full()
    (path,) = [path for path in full.fs.files() if path.endswith(".seg")]
    content = bytearray(full.fs.content(path))
    content[4096 : 4096 + 100_000] = bytes(100_000)
    full.fs.overwrite(path, bytes(content))
    full.reopen()
    lost = [finding.lost for finding in full.storage.report if finding.lost]
    assert lost
    assert lost[0][0] == 1
    assert full.store.first_seq == lost[0][1] + 1


def test_the_machines_own_files(tmp_path: Any) -> None:
    fs = LocalFiles()
    handle = fs.open(str(tmp_path / "file"), create=True)
    fs.pwrite(handle, b"x" * PUNCH_BYTES * 4, 0)
    if not fs.punch(handle, PUNCH_BYTES, 2 * PUNCH_BYTES):
        pytest.skip("this file system has no holes")
    assert fs.size(handle) == 4 * PUNCH_BYTES
    assert fs.pread(handle, 4 * PUNCH_BYTES, 0).count(b"x") == 2 * PUNCH_BYTES
    fs.close(handle)
    assert (tmp_path / "file").stat().st_blocks * 512 < 4 * PUNCH_BYTES
