"""A plan of faults: each comes at its call, once, and everything else is the disk's own."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from faultfs import FaultFS
from faultplan import FaultPoint, FaultyFiles, every_fault
from headrace.broker.store.io.files import LocalFiles


def written(files: FaultyFiles) -> int:
    handle = files.open("/f", create=True)
    files.pwrite(handle, b"0123456789", 0)
    return handle


def test_an_error_comes_at_its_call_and_only_once() -> None:
    files = FaultyFiles(FaultFS(), [FaultPoint("pwrite", 2, "ENOSPC")])
    handle = written(files)
    with pytest.raises(OSError) as raised:
        files.pwrite(handle, b"x", 0)
    assert raised.value.errno == errno.ENOSPC
    assert files.pwrite(handle, b"x", 0) == 1
    assert files.hit == [FaultPoint("pwrite", 2, "ENOSPC")]
    assert files.calls["pwrite"] == 3


def test_writes_may_be_short_or_torn() -> None:
    files = FaultyFiles(
        FaultFS(), [FaultPoint("pwrite", 1, "short"), FaultPoint("pwrite", 2, "torn")]
    )
    handle = written(files)
    assert files.content("/f") == b"01234"
    with pytest.raises(OSError):
        files.pwrite(handle, b"abcd", 0)
    assert files.content("/f") == b"ab234"


def test_an_error_after_the_call_leaves_it_done() -> None:
    files = FaultyFiles(FaultFS(), [FaultPoint("rename", 1, "EIO after")])
    written(files)
    with pytest.raises(OSError):
        files.rename("/f", "/g")
    assert files.files() == ["/g"]


def test_a_lie_about_a_sync_loses_what_was_written() -> None:
    files = FaultyFiles(FaultFS(), [FaultPoint("fdatasync", 1, "lie")])
    handle = written(files)
    files.fdatasync(handle)
    files.fsync_dir("/")
    assert files.inner.kill().content("/f") == b"0123456789"  # a killed process loses nothing
    for disk in (files.inner.kill(), files.inner):  # until the power goes, now or later
        assert b"" in {disk.power_cut(random.Random(seed)).content("/f") for seed in range(9)}


def test_a_failed_sync_loses_what_was_written_although_a_second_one_succeeds() -> None:
    files = FaultyFiles(FaultFS(), [FaultPoint("fdatasync", 1, "EIO")])
    handle = written(files)
    files.fsync_dir("/")
    with pytest.raises(OSError):
        files.fdatasync(handle)
    files.fdatasync(handle)
    assert files.power_cut(random.Random(1)).content("/f") == b""


def test_a_rotten_read_differs_in_one_bit_this_time(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    files = FaultyFiles(LocalFiles(), [FaultPoint("pread", 1, "rot")])
    handle = files.open(str(path))
    rotten = files.pread(handle, 10, 0)
    assert sum(a != b for a, b in zip(rotten, b"0123456789", strict=True)) == 1
    assert files.pread(handle, 10, 0) == b"0123456789"
    files.close(handle)


def test_the_plan_and_the_counts_go_on_after_a_crash_until_they_are_healed() -> None:
    files = FaultyFiles(FaultFS(), [FaultPoint("open", 1, "EMFILE"), FaultPoint("open", 2, "EIO")])
    written(files)
    found = files.kill()
    with pytest.raises(OSError):
        found.open("/f")
    found.heal()
    found.open("/f")
    assert found.hit == [FaultPoint("open", 1, "EMFILE")]


def test_every_fault_of_every_call_is_listed() -> None:
    points = list(every_fault({"pread": 2, "rename": 1}))
    assert len(points) == 2 * 2 + 3
    assert len(set(points)) == len(points)
    assert list(every_fault({"pread": 1, "rename": 1}, ["pread"])) == points[:2]
