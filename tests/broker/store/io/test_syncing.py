"""Files synced several at a time: all of them, the first failure told, and never another's handle."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.io.files import Handles, LocalFiles, write_all
from headrace.broker.store.io.syncing import THREADS, TOGETHER_MAX, TOGETHER_MIN, Syncing
from headrace.errors import StoreFailedError
from waiting import until_here


class Files(LocalFiles):
    """The machine's files, of which it is noted which were synced; some cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[int] = []
        self.threads: set[str] = set()
        self.failing: set[int] = set()

    def fdatasync(self, handle: int) -> None:
        self.synced.append(handle)
        self.threads.add(threading.current_thread().name)
        if handle in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(handle)


class Place:
    def __init__(self, directory: Path, count: int, limit: int = 256) -> None:
        self.files = Files()
        self.handles = Handles(self.files, limit)
        self.syncing = Syncing(self.files, self.handles, at_once=True)
        self.paths = [str(directory / f"{number}.seg") for number in range(count)]
        for path in self.paths:
            write_all(self.files, self.handles.get(path, create=True), b"data", 0)

    def close(self) -> None:
        self.syncing.close()
        self.handles.close()


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Place]]:
    made: list[Place] = []
    yield made
    for place in made:
        place.close()


@pytest.mark.parametrize("count", [TOGETHER_MIN, 20, TOGETHER_MAX, 2 * TOGETHER_MAX + 5])
def test_each_file_is_synced_once(tmp_path: Path, places: list[Place], count: int) -> None:
    place = Place(tmp_path, count, limit=1024)
    places.append(place)
    assert place.syncing.sync(place.paths) is None
    assert sorted(place.files.synced) == sorted(place.handles.get(path) for path in place.paths)
    assert place.syncing.together == count
    assert len(place.files.threads) <= THREADS
    assert all(name.startswith("headrace-sync") for name in place.files.threads)


def test_a_few_files_are_synced_where_that_is_asked_for(
    tmp_path: Path, places: list[Place]
) -> None:
    place = Place(tmp_path, TOGETHER_MIN - 1)
    places.append(place)
    assert place.syncing.sync(place.paths) is None
    assert place.files.threads == {threading.current_thread().name}
    assert place.syncing.together == 0


@pytest.mark.parametrize("number", [0, 7, 19])
def test_a_file_that_fails_is_named(tmp_path: Path, places: list[Place], number: int) -> None:
    place = Place(tmp_path, 20)
    places.append(place)
    place.files.failing = {place.handles.get(place.paths[number])}
    failed = place.syncing.sync(place.paths)
    assert failed is not None
    assert (failed[0], failed[1].errno) == (place.paths[number], errno.EIO)


def test_without_handles_for_all_they_are_synced_one_after_the_other(
    tmp_path: Path, places: list[Place]
) -> None:
    place = Place(tmp_path, 20, limit=4)
    places.append(place)
    assert place.syncing.sync(place.paths) is None
    assert len(place.files.synced) == 20
    assert place.syncing.together == 0


def test_where_no_thread_can_begin_they_are_synced_one_after_the_other(
    tmp_path: Path, places: list[Place]
) -> None:
    place = Place(tmp_path, 20)
    places.append(place)
    assert place.syncing.sync(place.paths) is None
    assert place.syncing._pool is not None
    place.syncing._pool.shutdown()  # as at the end of the interpreter
    place.files.synced.clear()
    assert place.syncing.sync(place.paths) is None
    assert len(place.files.synced) == 20
    assert place.syncing.together == 20


def test_a_failure_is_final_though_not_all_threads_could_begin(
    tmp_path: Path, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of a failed sync once: asked again, it would say that all is well."""
    place = Place(tmp_path, 20)
    places.append(place)
    assert place.syncing.sync(place.paths) is None
    pool = place.syncing._pool
    begun: list[bool] = []
    assert pool is not None
    submit = pool.submit

    def only_one(*arguments: Any) -> Any:
        if begun:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")
        begun.append(True)
        return submit(*arguments)

    monkeypatch.setattr(pool, "submit", only_one)
    broken = place.handles.get(place.paths[0])

    def fail_once(handle: int) -> None:
        if handle == broken and not place.files.failing:
            place.files.failing.add(handle)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(place.files, "fdatasync", fail_once)
    failed = place.syncing.sync(place.paths)
    assert failed is not None and failed[0] == place.paths[0]


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, places: list[Place]) -> None:
    place = Place(tmp_path, 20)
    places.append(place)
    place.handles.close()
    Path(place.paths[3]).unlink()
    failed = place.syncing.sync(place.paths)
    assert failed is not None
    assert (failed[0], failed[1].errno) == (place.paths[3], errno.ENOENT)


def fill(storage: FileStorage, streams: int) -> list[Exception | None]:
    """A message to each stream, in one flush; what it was told."""
    told: list[Exception | None] = []
    for number in range(streams):
        name = f"S{number}"
        log = (
            storage.open_stream(name) if name in storage.streams() else storage.create_stream(name)
        )
        log.append(b"s", b"", b"payload", 1)
    storage.flush(told.append)

    def is_over() -> bool:
        storage.complete()
        return bool(told)

    until_here(is_over, "the flush did not end", within=20)
    return told


@pytest.mark.parametrize("wholes", [False, True])
def test_a_flush_of_many_streams_syncs_them_together(wholes: bool) -> None:
    fs = FaultFS(wholes=wholes)
    storage = FileStorage("/s", fs=fs)
    assert fill(storage, 40) == [None]
    syncing = storage._writer.syncing
    assert syncing.together == (0 if wholes else 40)
    assert (syncing.whole >= 40) is wholes
    again = FileStorage("/s", fs=fs.power_cut(random.Random(1)))
    storage.close()
    assert [again.open_stream(f"S{number}").last_seq for number in range(40)] == [1] * 40
    again.close()


def test_many_streams_are_synced_together_on_this_machine(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "s")
    assert fill(storage, 40) == [None]
    syncing = storage._writer.syncing
    assert syncing.together + syncing.whole >= 40
    storage.close()
    again = FileStorage(tmp_path / "s")
    assert [again.open_stream(f"S{number}").last_seq for number in range(40)] == [1] * 40
    again.close()


def test_one_failing_file_fails_the_flush_of_all(tmp_path: Path) -> None:
    class Failing(FaultFS):
        together = 0

        def fdatasync(self, handle: int) -> None:
            self.together += threading.current_thread().name.startswith("headrace-sync")
            if self.together == 5:
                raise OSError(errno.EIO, "Input/output error")
            super().fdatasync(handle)

    storage = FileStorage("/s", fs=Failing())
    (error,) = fill(storage, 40)
    assert isinstance(error, StoreFailedError)
    assert ".seg: Input/output error" in str(error)
    assert storage.failed is not None
    storage.close()
