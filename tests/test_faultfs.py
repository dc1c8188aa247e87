"""The failing disk loses what a real one may lose, and nothing else."""

from __future__ import annotations

import random

import pytest

from faultfs import Fault, FaultFS, PowerCut


def written(fs: FaultFS, path: str, data: bytes) -> int:
    handle = fs.open(path, create=True)
    fs.pwrite(handle, data, 0)
    return handle


def test_synced_data_with_a_synced_name_survives_every_power_cut() -> None:
    for seed in range(50):
        fs = FaultFS()
        fs.fdatasync(written(fs, "/f", b"kept"))
        fs.fsync_dir("/")
        assert fs.power_cut(random.Random(seed)).content("/f") == b"kept"


def test_unsynced_writes_survive_or_not_each_by_itself() -> None:
    outcomes = set()
    for seed in range(200):
        fs = FaultFS()
        handle = written(fs, "/f", b"....")
        fs.fdatasync(handle)
        fs.fsync_dir("/")
        fs.pwrite(handle, b"A", 0)
        fs.pwrite(handle, b"B", 2)
        outcomes.add(fs.power_cut(random.Random(seed)).content("/f"))
    assert outcomes == {b"....", b"A...", b"..B.", b"A.B."}


def test_a_name_that_was_not_synced_may_be_lost_with_all_its_data() -> None:
    outcomes = set()
    for seed in range(50):
        fs = FaultFS()
        fs.fdatasync(written(fs, "/f", b"kept"))
        outcomes.add(tuple(fs.power_cut(random.Random(seed)).files()))
    assert outcomes == {(), ("/f",)}


def test_a_rename_is_whole_or_not_at_all() -> None:
    outcomes = set()
    for seed in range(50):
        fs = FaultFS()
        fs.fdatasync(written(fs, "/old", b"x"))
        fs.fsync_dir("/")
        fs.rename("/old", "/new")
        outcomes.add(tuple(fs.power_cut(random.Random(seed)).files()))
    assert outcomes == {("/old",), ("/new",)}


def test_a_write_never_survives_without_the_truncation_before_it() -> None:
    for seed in range(100):
        fs = FaultFS()
        handle = written(fs, "/f", b"long old content")
        fs.fdatasync(handle)
        fs.fsync_dir("/")
        fs.truncate(handle, 0)
        fs.pwrite(handle, b"new", 0)
        assert fs.power_cut(random.Random(seed)).content("/f") in {b"long old content", b"", b"new"}


def test_after_a_failed_sync_a_second_one_succeeds_and_the_data_is_gone() -> None:
    fs = FaultFS()
    handle = written(fs, "/f", b"gone")
    fs.fsync_dir("/")
    fs.fail(fs.operations + 1, "eio")
    with pytest.raises(OSError):
        fs.fdatasync(handle)
    fs.fdatasync(handle)
    assert fs.power_cut(random.Random(1)).content("/f") == b""


def test_killing_the_process_loses_nothing_and_frees_its_locks() -> None:
    fs = FaultFS()
    handle = written(fs, "/f", b"kept")
    assert fs.lock(handle)
    survivor = fs.kill()
    assert survivor.content("/f") == b"kept"
    assert survivor.lock(survivor.open("/f"))


def test_the_power_goes_at_the_chosen_operation_and_stays_away() -> None:
    expectations: list[tuple[Fault, bytes]] = [("crash", b""), ("crash after", b"x")]
    for fault, expected in expectations:
        fs = FaultFS()
        handle = fs.open("/f", create=True)
        fs.fail(2, fault)
        with pytest.raises(PowerCut):
            fs.pwrite(handle, b"x", 0)
        with pytest.raises(PowerCut):
            fs.pread(handle, 1, 0)
        assert fs.kill().content("/f") == expected


def test_a_small_disk_fills_up_and_has_room_again() -> None:
    fs = FaultFS(capacity=10)
    handle = fs.open("/f", create=True)
    assert fs.pwrite(handle, b"12345678", 0) == 8
    assert fs.pwrite(handle, b"abcd", 8) == 2
    with pytest.raises(OSError, match="No space left"):
        fs.pwrite(handle, b"x", 10)
    with pytest.raises(OSError, match="No space left"):
        fs.allocate(handle, 10, 5)
    assert fs.pwrite(handle, b"over", 0) == 4
    fs.truncate(handle, 5)
    assert fs.allocate(handle, 5, 5)


def test_a_flipped_bit_is_the_only_difference() -> None:
    fs = FaultFS()
    written(fs, "/f", b"\0\0")
    fs.flip_bit("/f", 9)
    assert fs.content("/f") == b"\0\2"
