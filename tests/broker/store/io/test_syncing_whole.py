"""All files synced by syncing their whole file system: when that is done, and what a failure means."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store.io import files as store_files
from headrace.broker.store.io.files import Handles, LocalFiles, write_all
from headrace.broker.store.io.syncing import DIRTY_MAX, WHOLE_MIN, Syncing, Thrift

COUNT = 20
MS = 1_000_000


class Files(FaultFS):
    """A disk in memory that notes how it was synced."""

    def __init__(self, trouble: int = 0) -> None:
        super().__init__(wholes=True)
        self.trouble = trouble
        self.failing: set[int] = set()
        self.asked: list[str] = []

    def fdatasync(self, handle: int) -> None:
        self.asked.append("file")
        if handle in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(handle)

    def sync_whole(self, handle: int, paths: Sequence[str], most_dirty: int) -> bool:
        self.asked.append("whole")
        if self.trouble:
            raise OSError(self.trouble, "trouble")
        return super().sync_whole(handle, paths, most_dirty)


class Place:
    def __init__(self, files: Files, count: int = COUNT, limit: int = 256) -> None:
        self.files = files
        self.handles = Handles(files, limit)
        self.anchor = files.open("/anchor", create=True)
        self.now_ns = 0
        self.syncing = Syncing(
            files,
            self.handles,
            at_once=False,
            anchor=self.anchor,
            monotonic_ns=lambda: self.now_ns,
        )
        files.mkdir("/d")
        self.paths = [f"/d/{number}.seg" for number in range(count)]
        for path in self.paths:
            write_all(files, self.handles.get(path, create=True), b"data", 0)

    def survives(self) -> set[str]:
        """The files that are whole after a power cut of the worst kind."""
        lost = [self.files.power_cut(random.Random(seed)) for seed in range(30)]
        return {
            path
            for path in self.paths
            if all(path in disk.files() and disk.content(path) == b"data" for disk in lost)
        }


def test_many_files_and_their_names_are_on_disk_after_one_call_for_all() -> None:
    place = Place(Files())
    assert place.syncing.sync(place.paths, ["/", "/d"]) is None
    assert place.files.asked == ["whole", "file"]  # and a file, so that the disk empties its cache
    assert place.syncing.whole == COUNT + 2
    assert place.survives() == set(place.paths)


def test_few_files_are_synced_by_themselves_and_then_their_directories() -> None:
    place = Place(Files(), WHOLE_MIN - 2)
    assert place.syncing.sync(place.paths, ["/"]) is None
    assert place.files.asked == ["file"] * (WHOLE_MIN - 2)
    assert place.syncing.sync([], ["/d"]) is None
    assert place.survives() == set(place.paths)


def test_names_alone_are_on_disk_after_one_call_and_one_for_a_directory() -> None:
    place = Place(Files())
    several = ["/", "/d", "/d", "/d"]
    assert place.syncing.sync([], several) is None
    assert place.files.asked == ["whole"]
    assert place.files.log[-1].endswith("fsync_dir /d")
    assert set(place.files.power_cut(random.Random(1)).files()) >= set(place.paths)


def test_without_an_anchor_the_whole_is_not_asked_for() -> None:
    place = Place(Files())
    syncing = Syncing(place.files, place.handles, at_once=False)
    assert syncing.sync(place.paths, ["/", "/d"]) is None
    assert place.files.asked == ["file"] * COUNT
    assert place.survives() == set(place.paths)


def test_a_disk_without_such_a_call_syncs_each_file() -> None:
    place = Place(Files())
    place.files.wholes = False
    assert place.syncing.sync(place.paths, ["/", "/d"]) is None
    assert place.files.asked == ["whole", *["file"] * COUNT]
    assert place.survives() == set(place.paths)


@pytest.mark.parametrize("trouble", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_somebody_elses_failure_is_none_of_the_store(trouble: int) -> None:
    place = Place(Files(trouble))
    assert place.syncing.sync(place.paths, ["/", "/d"]) is None
    assert place.files.asked == ["whole", *["file"] * COUNT]
    assert place.survives() == set(place.paths)


def test_the_file_that_failed_is_named_by_its_own_sync() -> None:
    place = Place(Files(errno.EIO))
    place.files.failing = {place.handles.get(place.paths[7])}
    failed = place.syncing.sync(place.paths)
    assert failed is not None
    assert (failed[0], failed[1].errno) == (place.paths[7], errno.EIO)


def test_a_failure_that_no_handle_has_seen_is_taken_for_one_of_the_store() -> None:
    """A file that was closed meanwhile may have forgotten that a write of it has failed."""
    place = Place(Files(errno.EIO), limit=4)
    failed = place.syncing.sync(place.paths)
    assert failed is not None
    assert failed[0] == f"the file system of {place.paths[0]}"
    assert place.files.asked == ["whole"]


def test_no_room_for_others_is_no_failure_however_few_handles_there_are() -> None:
    place = Place(Files(errno.ENOSPC), limit=4)
    assert place.syncing.sync(place.paths, ["/", "/d"]) is None
    assert place.survives() == set(place.paths)


def test_lost_writes_are_found_by_the_files_they_were_lost_of() -> None:
    place = Place(Files())
    place.files.fail(place.files.operations + 1, "eio")
    failed = place.syncing.sync(place.paths)
    assert failed is not None and failed[0] == place.paths[0]


def test_after_a_slow_one_the_files_are_synced_by_themselves_for_a_while() -> None:
    place = Place(Files())
    sync_whole = place.files.sync_whole

    def slowly(handle: int, paths: Sequence[str], most_dirty: int) -> bool:
        place.now_ns += 400 * MS
        return sync_whole(handle, paths, most_dirty)

    place.files.sync_whole = slowly  # type: ignore[method-assign]
    assert place.syncing.sync(place.paths) is None
    place.files.asked.clear()
    assert place.syncing.sync(place.paths) is None
    assert place.files.asked == ["file"] * COUNT
    place.now_ns += 20_000 * MS
    place.files.asked.clear()
    assert place.syncing.sync(place.paths) is None
    assert "whole" in place.files.asked


# When it is worth it


def test_a_sync_as_quick_as_the_files_needs_no_rest() -> None:
    thrift = Thrift(WHOLE_MIN)
    thrift.whole_took(1_000, 90 * MS, 90 * MS)
    assert thrift.may(1_000, 90 * MS)
    assert not thrift.may(WHOLE_MIN - 1, 90 * MS)


def test_where_each_file_takes_long_the_whole_may_take_long_too() -> None:
    thrift = Thrift(WHOLE_MIN)
    for _ in range(40):
        thrift.each_took(10, 10 * 5 * MS)
    thrift.whole_took(10, 150 * MS, 150 * MS)
    assert thrift.may(10, 150 * MS)
    thrift.whole_took(10, 250 * MS, 400 * MS)
    assert not thrift.may(10, 400 * MS)


@given(st.lists(st.tuples(st.integers(1, 2_000), st.integers(0, 10_000 * MS)), max_size=60))
def test_at_most_a_fiftieth_of_the_time_is_lost_by_trying(syncs: list[tuple[int, int]]) -> None:
    """Whatever a sync of all takes: those that were too slow are a small part of the time until the next."""
    thrift = Thrift(WHOLE_MIN)
    now_ns = slow_ns = 0
    for count, took_ns in syncs:
        if not thrift.may(count, now_ns):
            now_ns += count * 50_000
            thrift.each_took(count, count * 50_000)
            continue
        assert now_ns >= 50 * slow_ns
        now_ns += took_ns
        thrift.whole_took(count, took_ns, now_ns)
        if not thrift.may(count, now_ns):
            slow_ns += took_ns


# The machine's own


@pytest.fixture
def files() -> Iterator[LocalFiles]:
    made = LocalFiles()
    yield made
    made.release()


def made_in(files: LocalFiles, directory: Path, count: int = 5) -> tuple[int, list[str]]:
    anchor = files.open(str(directory / "anchor"), create=True)
    paths = [str(directory / f"{number}.seg") for number in range(count)]
    for path in paths:
        handle = files.open(path, create=True)
        write_all(files, handle, b"data", 0)
        files.close(handle)
    return anchor, paths


def test_this_machines_disk_is_synced_where_that_is_known_to_be_right(
    files: LocalFiles, tmp_path: Path
) -> None:
    anchor, paths = made_in(files, tmp_path)
    known = store_files._is_known(anchor)
    assert files.sync_whole(anchor, paths, 1 << 62) is known
    assert files.sync_whole(anchor, [*paths, str(tmp_path)], 1 << 62) is known
    files.close(anchor)


def test_what_lies_on_another_disk_is_not_taken_for_synced(
    files: LocalFiles, tmp_path: Path
) -> None:
    anchor, paths = made_in(files, tmp_path)
    assert files.sync_whole(anchor, [*paths, "/proc/self/stat"], 1 << 62) is False
    (tmp_path / "elsewhere").symlink_to("/proc/self")
    assert files.sync_whole(anchor, [str(tmp_path / "elsewhere")], 1 << 62) is False
    files.close(anchor)


def test_it_is_left_where_others_have_much_to_write(files: LocalFiles, tmp_path: Path) -> None:
    anchor, paths = made_in(files, tmp_path)
    assert files.sync_whole(anchor, paths, -1) is False
    files.close(anchor)


def test_a_file_system_that_is_not_known_is_left(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_files, "_FILE_SYSTEMS", frozenset({0x01021994}))
    anchor, paths = made_in(files, tmp_path)
    in_memory = store_files._is_known(anchor)
    assert files.sync_whole(anchor, paths, 1 << 62) is in_memory
    files.close(anchor)


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("6.18.44-fc-v595", (6, 18)),
        ("5.17.0", (5, 17)),
        ("4.19-rc1+", (4, 19)),
        ("5.4.0-150-generic", (5, 4)),
        ("strange", ()),
    ],
)
def test_a_kernel_is_as_old_as_it_says(
    release: str, numbers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Uname:
        pass

    found = Uname()
    found.release = release  # type: ignore[attr-defined]
    monkeypatch.setattr(os, "uname", lambda: found)
    assert store_files._kernel() == numbers
    store_files._calls.cache_clear()
    assert (store_files._calls() is None) is (numbers < (5, 17))
    store_files._calls.cache_clear()


def test_what_the_machine_has_to_write_is_told_in_bytes() -> None:
    found = store_files.dirty_bytes()
    assert found is None or (found >= 0 and found % 1024 == 0)
    assert DIRTY_MAX % 1024 == 0


def test_a_file_that_is_known_to_be_in_place_is_not_looked_for_again_while_it_is_open(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor, paths = made_in(files, tmp_path)
    if not store_files._is_known(anchor):
        pytest.skip("this disk is never synced as a whole")
    handles = [files.open(path) for path in paths]
    assert all(map(files.is_at, handles, paths))
    looked: list[str] = []
    stat = os.stat

    def noted(path: str) -> os.stat_result:
        looked.append(path)
        return stat(path)

    monkeypatch.setattr(os, "stat", noted)
    assert files.sync_whole(anchor, [*paths, str(tmp_path)], 1 << 62)
    assert looked == [str(tmp_path)]
    looked.clear()
    files.close(handles[0])
    assert files.sync_whole(anchor, paths, 1 << 62)
    assert looked == paths[:1]
    for handle in [*handles[1:], anchor]:
        files.close(handle)


def test_what_is_known_of_a_file_ends_when_another_takes_its_place(
    files: LocalFiles, tmp_path: Path
) -> None:
    anchor, paths = made_in(files, tmp_path, 2)
    first, second = map(files.open, paths)
    assert files.is_at(first, paths[0])
    assert files.is_at(second, paths[1])
    files.rename(paths[1], paths[0])
    assert not files.is_at(first, paths[0])
    assert not files.is_at(second, paths[1])
    assert files.is_at(second, paths[0])
    assert not files._placed.keys() - {paths[0]}
    files.close(second)
    assert not files._placed
    assert not files._places
    files.close(first)
    files.close(anchor)


def test_an_open_file_of_another_disk_is_not_taken_for_synced(
    files: LocalFiles, tmp_path: Path
) -> None:
    anchor, paths = made_in(files, tmp_path)
    other = "/dev/shm/headrace-" + tmp_path.name + str(os.getpid())
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("no other disk here")
    handle = files.open(other, create=True)
    try:
        assert files.is_at(handle, other)
        assert files.sync_whole(anchor, [*paths, other], 1 << 62) is False
    finally:
        files.unlink(other)
        files.close(handle)
        files.close(anchor)
