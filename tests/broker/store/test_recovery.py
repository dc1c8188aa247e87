"""What a start makes of the files it finds; ``tests/crash`` does the same with every byte of them."""

from __future__ import annotations

import random

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage

BIG = 1 << 40


def opened(fs: FaultFS) -> FileStorage:
    salts = random.Random(1)
    return FileStorage("/s", fs=fs, threaded=False, segment_bytes=8192, salts=salts)


def made(*, count: int = 12, clean: bool = False) -> FaultFS:
    """A stream of messages of 500 bytes, each acknowledged alone."""
    fs = FaultFS()
    storage = opened(fs)
    store = storage.create_stream("S")
    for number in range(1, count + 1):
        store.append(b"a", b"", b"%02d" % number * 250, number)
        storage.flush(lambda error: None)
    assert store.durable_seq == count
    if clean:
        storage.close()
    return fs.kill()


def found(storage: FileStorage) -> list[int]:
    messages = storage.open_stream("S").read(1, None, BIG, BIG, BIG)
    assert all(m.payload == b"%02d" % m.sequence * 250 for m in messages)
    return [m.sequence for m in messages]


def place_of(fs: FaultFS, number: int) -> tuple[str, int]:
    """Where the payload of this message is."""
    for path in fs.files():
        at = fs.content(path).find(b"%02d" % number * 250)
        if path.endswith(".seg") and at >= 0:
            return path, at
    raise AssertionError(f"message {number} is in no file")


@pytest.mark.parametrize("clean", [True, False])
def test_all_that_was_acknowledged_is_there_and_nothing_is_reported(clean: bool) -> None:
    storage = opened(made(clean=clean))
    assert found(storage) == [*range(1, 13)]
    assert storage.report == []


@pytest.mark.parametrize("number", [1, 5, 11])
def test_a_record_that_is_damaged_is_passed_over_and_reported(number: int) -> None:
    fs = made()
    path, at = place_of(fs, number)
    fs.flip_bit(path, 8 * (at + 7))
    storage = opened(fs)
    assert found(storage) == [each for each in range(1, 13) if each != number]
    assert {finding.path for finding in storage.report} == {path}
    assert storage.open_stream("S").append(b"a", b"", b"", 99) == 13


def test_a_torn_write_behind_what_was_acknowledged_is_cut_off_without_a_word() -> None:
    fs = made()
    path, at = place_of(fs, 12)
    whole = fs.content(path)
    end = at + 500 + 8
    torn = whole[:end] + random.Random(3).randbytes(60) + whole[end + 60 :]
    fs.overwrite(path, torn)
    storage = opened(fs)
    assert found(storage) == [*range(1, 13)]
    assert storage.open_stream("S").append(b"a", b"", b"", 99) == 13


def test_what_is_missing_below_the_watermark_is_reported_and_its_sequence_never_used_again() -> (
    None
):
    fs = made()
    path, at = place_of(fs, 12)
    whole = fs.content(path)
    fs.overwrite(path, whole[:at] + bytes(len(whole) - at))
    storage = opened(fs)
    assert found(storage) == [*range(1, 12)]
    assert storage.report
    assert storage.open_stream("S").append(b"a", b"", b"", 99) == 13


def test_reading_twice_finds_the_same() -> None:
    fs = made()
    path, at = place_of(fs, 6)
    fs.flip_bit(path, 8 * at)
    first = opened(fs)
    once = found(first)
    second = opened(fs.kill())
    assert found(second) == once
