"""A lack of memory or handles behind the sync of the journal takes nothing back that is on disk."""

from __future__ import annotations

import errno
import os
import random

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.errors import StoreFailedError

JOURNAL = "journal-00000001"


class Short(FaultFS):
    """A system that lacks memory where one asks for a file, or removes it."""

    error = 0
    call = ""

    def is_at(self, handle: int, path: str) -> bool:
        self._ask("is_at", path)
        return super().is_at(handle, path)

    def exists(self, path: str) -> bool:
        self._ask("exists", path)
        return super().exists(path)

    def unlink(self, path: str) -> None:
        self._ask("unlink", path)
        super().unlink(path)

    def _ask(self, call: str, path: str) -> None:
        if call == self.call and path.endswith(JOURNAL):
            raise OSError(self.error, os.strerror(self.error))


def opened(fs: FaultFS) -> FileStorage:
    return FileStorage("/s", fs=fs, threaded=False, salts=random.Random(1))


def flush(storage: FileStorage) -> Exception | None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    return outcome[0]


def begun(fs: FaultFS) -> FileStorage:
    storage = opened(fs)
    storage.create_stream("A")
    storage.meta.put("k", b"0")
    assert flush(storage) is None
    return storage


def put(storage: FileStorage, mark: bytes) -> Exception | None:
    storage.open_stream("A").append(b"a", b"", mark, 1)
    storage.meta.append("k", mark)
    return flush(storage)


def held(fs: FaultFS) -> tuple[list[bytes], tuple[bytes, list[bytes]]]:
    """What the next start finds: the payloads, and the metadata."""
    storage = opened(fs)
    assert not storage.report, storage.report
    messages = storage.open_stream("A").read(1, None, 999, 1 << 20, 1 << 20)
    base, deltas = storage.meta.load()["k"]
    storage.close()
    return [each.payload for each in messages], (base, list(deltas))


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
def test_nobody_can_look_whether_the_file_is_there(number: int) -> None:
    fs = Short()
    storage = begun(fs)
    fs.call, fs.error = "is_at", number
    assert put(storage, b"1") is None
    fs.call = ""
    assert put(storage, b"2") is None
    assert held(fs.kill()) == ([b"1", b"2"], (b"0", [b"1", b"2"]))


def test_a_file_that_was_removed_meanwhile_is_noticed_by_the_next_commit() -> None:
    fs = Short()
    storage = begun(fs)
    fs.call, fs.error = "is_at", errno.ENOMEM
    fs.unlink(next(path for path in fs.files() if path.endswith(JOURNAL)))
    assert put(storage, b"1") is None
    fs.call = ""
    assert isinstance(put(storage, b"2"), StoreFailedError)
    assert "removed" in str(storage.failed)


@pytest.mark.parametrize("call", ["exists", "unlink"])
def test_the_file_before_a_rewrite_cannot_be_removed(call: str) -> None:
    fs = Short()
    storage = begun(fs)
    fs.call, fs.error = call, errno.ENOMEM
    marks = [b"%d" % number for number in range(300)]
    for mark in marks:
        storage.open_stream("A").append(b"a", b"", mark, 1)
        storage.meta.put("k", mark.ljust(4_000, b"."))
        assert flush(storage) is None
    fs.call = ""
    assert [path for path in fs.files() if path.endswith("journal-00000002")], (
        "it was not rewritten"
    )
    messages, (base, deltas) = held(fs.kill())
    assert (messages, base.strip(b"."), deltas) == (marks, marks[-1], [])
