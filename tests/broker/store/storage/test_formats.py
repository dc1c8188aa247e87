"""The number of the store's format: a newer one is refused in words, earlier stores are read."""

from __future__ import annotations

from zlib import crc32

import pytest

from disks import disk_of
from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.version import (
    LOGGED_FORMAT,
    STORE_FORMAT,
    decode_format,
    encode_format,
)
from headrace.errors import StoreFormatError

FORMAT = "/s/format"
NEWER = STORE_FORMAT + 1


def open_store(fs: FaultFS) -> FileStorage:
    return FileStorage("/s", fs=fs, threaded=False)


def a_store() -> FaultFS:
    storage = open_store(FaultFS())
    storage.create_stream("S").append(b"s.1", b"", b"one", 1)
    storage.flush(lambda error: None)
    storage.close()
    return disk_of(storage).kill()


def contents(fs: FaultFS) -> dict[str, bytes]:
    return {path: fs.content(path) for path in fs.files()}


def write(fs: FaultFS, path: str, content: bytes) -> None:
    fs.close(fs.open(path, create=not fs.exists(path)))
    fs.overwrite(path, content)


def test_a_store_says_the_number_of_its_format() -> None:
    assert decode_format(a_store().content(FORMAT)) == (STORE_FORMAT, False)


def test_a_store_of_a_newer_format_is_refused_before_anything_is_changed() -> None:
    fs = a_store()
    write(fs, FORMAT, encode_format(NEWER))
    before = contents(fs)
    with pytest.raises(StoreFormatError, match=rf"{FORMAT} has store format {NEWER}.*newer"):
        open_store(fs)
    assert contents(fs) == before


def test_one_whole_line_is_enough_to_refuse_a_newer_format() -> None:
    fs = a_store()
    newer = encode_format(NEWER)
    write(fs, FORMAT, newer[: len(newer) // 2] + b"garbage\n")
    with pytest.raises(StoreFormatError):
        open_store(fs)


@pytest.mark.parametrize("content", [None, b""])
def test_a_store_from_before_there_was_a_number_is_opened_and_gets_one(
    content: bytes | None,
) -> None:
    fs = a_store()
    if content is None:
        fs.unlink(FORMAT)
    else:
        write(fs, FORMAT, content)
    storage = open_store(fs)
    assert storage.open_stream("S").messages == 1
    assert storage.report == []
    assert disk_of(storage).content(FORMAT) == encode_format(STORE_FORMAT)


def test_a_damaged_number_keeps_no_store_from_opening_and_is_reported() -> None:
    fs = a_store()
    size = len(fs.content(FORMAT))
    for bit in range(0, 8 * size, 3):
        damaged = fs.kill()
        fs._off = False
        damaged.flip_bit(FORMAT, bit)
        storage = open_store(damaged)
        assert [finding.path for finding in storage.report] == [FORMAT]
        assert disk_of(storage).content(FORMAT) == encode_format(STORE_FORMAT)


@pytest.mark.parametrize("content", [encode_format(LOGGED_FORMAT), b"", b"headrace stor"])
def test_a_store_whose_messages_are_in_part_in_a_commit_log_is_refused_with_what_to_do(
    content: bytes,
) -> None:
    fs = a_store()
    fs.mkdir("/s/commit-log")
    for path in ("/s/commit-log/0.log", "/s/commit-log/1.log"):
        write(fs, path, b"HRCOMLOG")
    write(fs, FORMAT, content)
    before = contents(fs)
    with pytest.raises(StoreFormatError, match=r"/s was not stopped.*SIGTERM"):
        open_store(fs)
    assert contents(fs) == before


def test_a_store_that_once_had_a_commit_log_and_was_stopped_is_opened() -> None:
    fs = a_store()
    words = b"headrace store, format 1, log 0123456789abcdef"
    said = (words + b" %08x\n" % crc32(words)) * 2
    write(fs, FORMAT, said)
    storage = open_store(fs)
    assert storage.open_stream("S").messages == 1
    assert storage.report == []
    assert disk_of(storage).content(FORMAT) == encode_format(STORE_FORMAT)
