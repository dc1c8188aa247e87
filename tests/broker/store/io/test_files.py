"""The real files behave as the port says, and handles stay few."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.store.io.files import Handles, LocalFiles, explain, is_full, write_all
from headrace.errors import StoreFailedError, StoreFullError


@pytest.fixture(params=["local", "fault"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LocalFiles | FaultFS, str]:
    """A file system and a directory in it."""
    if request.param == "local":
        return LocalFiles(), str(tmp_path)
    fs = FaultFS()
    fs.mkdir("/d")
    return fs, "/d"


def test_files_are_made_written_read_and_cut(place: Any) -> None:
    fs, root = place
    handle = fs.open(root + "/f", create=True)
    with pytest.raises(FileExistsError):
        fs.open(root + "/f", create=True)
    assert fs.pwrite(handle, b"hello", 3) == 5
    assert fs.pread(handle, 100, 0) == b"\0\0\0hello"
    assert fs.pread(handle, 2, 4) == b"el"
    assert fs.pread(handle, 2, 50) == b""
    assert fs.allocate(handle, 8, 100)
    assert fs.size(handle) == 108
    fs.truncate(handle, 5)
    fs.fdatasync(handle)
    assert fs.pread(handle, 100, 0) == b"\0\0\0he"
    fs.close(handle)
    with pytest.raises(FileNotFoundError):
        fs.open(root + "/g")


def test_what_lies_at_a_path_and_whether_a_file_still_does(place: Any) -> None:
    fs, root = place
    handle = fs.open(root + "/f", create=True)
    fs.mkdir(root + "/d")
    assert [fs.kind(f"{root}/{name}") for name in ("f", "d", "g")] == ["file", "directory", ""]
    assert fs.is_at(handle, root + "/f")
    assert not fs.is_at(handle, root + "/g")
    fs.rename(root + "/f", root + "/d/g")
    assert not fs.is_at(handle, root + "/f")
    assert fs.is_at(handle, root + "/d/g")
    other = fs.open(root + "/f", create=True)
    assert not fs.is_at(handle, root + "/f")
    fs.unlink(root + "/d/g")
    assert not fs.is_at(handle, root + "/d/g")
    fs.close(handle)
    fs.close(other)


def test_directories_are_made_listed_renamed_and_removed(place: Any) -> None:
    fs, root = place
    fs.mkdir(root + "/b")
    fs.close(fs.open(root + "/b/f", create=True))
    fs.close(fs.open(root + "/a", create=True))
    assert fs.listdir(root) == ["a", "b"]
    with pytest.raises(NotADirectoryError):
        fs.listdir(root + "/a")
    fs.rename(root + "/b", root + "/c")
    fs.fsync_dir(root)
    assert fs.exists(root + "/c/f")
    assert not fs.exists(root + "/b")
    with pytest.raises(OSError):
        fs.rmdir(root + "/c")
    fs.unlink(root + "/c/f")
    fs.rmdir(root + "/c")
    fs.rename(root + "/a", root + "/d")
    assert fs.listdir(root) == ["d"]


def test_a_lock_is_exclusive_and_ends_with_its_handle(place: Any) -> None:
    fs, root = place
    one = fs.open(root + "/lock", create=True)
    two = fs.open(root + "/lock")
    assert fs.lock(one)
    assert not fs.lock(two)
    fs.close(one)
    assert fs.lock(two)
    fs.close(two)


def test_short_writes_are_continued_and_a_stuck_one_is_a_full_disk() -> None:
    fs = FaultFS()
    handle = fs.open("/f", create=True)
    fs.fail(2, "short")
    fs.fail(3, "short")
    write_all(fs, handle, b"0123456789", 0)
    assert fs.content("/f") == b"0123456789"
    full = FaultFS(capacity=4)
    handle = full.open("/f", create=True)
    with pytest.raises(OSError) as caught:
        write_all(full, handle, b"0123456789", 0)
    assert is_full(caught.value)


def test_handles_close_the_least_recently_used() -> None:
    fs = FaultFS()
    for name in "abc":
        fs.close(fs.open(f"/{name}", create=True))
    handles = Handles(fs, 2)
    first = handles.get("/a")
    handles.get("/b")
    assert handles.get("/a") == first
    handles.get("/c")
    assert len(fs._handles) == 2
    assert handles.get("/a") == first
    handles.drop("/a")
    handles.drop("/a")
    handles.close()
    assert fs._handles == {}


def test_when_the_process_is_short_of_handles_the_store_makes_do_with_one() -> None:
    class Short(FaultFS):
        def open(self, path: str, *, create: bool = False) -> int:
            if len(self._handles) >= 2:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, create=create)

    fs = Short()
    for name in "abcd":
        fs.close(fs.open(f"/{name}", create=True))
    handles = Handles(fs, 100)
    for name in "abcd":
        handles.get(f"/{name}")
    assert len(fs._handles) <= 2
    handles.close()


def test_errors_are_explained_as_full_or_failed() -> None:
    full = explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "writing x")
    assert isinstance(full, StoreFullError)
    assert str(full) == "the disk is full: writing x: No space left on device"
    failed = explain(OSError(errno.EIO, os.strerror(errno.EIO)), "writing x")
    assert isinstance(failed, StoreFailedError)
