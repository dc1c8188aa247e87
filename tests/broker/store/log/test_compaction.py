"""A segment is copied in steps, its footer too, between which others commit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.commit.writer import Writer
from headrace.broker.store.format.segment import TRAILER_BYTES, decode_trailer
from headrace.broker.store.log.compaction import Compaction

MIB = 1 << 20
MESSAGES = 80_000
KEPT = range(4, MESSAGES + 1, 4)  # so many that their footer has half a megabyte


class Steps:
    """What the steps of a compaction write; ``between`` is called before each one of the footer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fs: FaultFS) -> None:
        self.written: list[int] = []
        self.of_footer = 0
        self.is_stepping = False
        self.between: Callable[[], None] = lambda: None
        chore, pwrite = Compaction.chore, fs.pwrite

        def step(compaction: Compaction, writer: Writer) -> bool:
            if compaction._copied == len(compaction.positions):
                self.of_footer += 1
                self.between()
            self.written.append(0)
            self.is_stepping = True
            has_more = chore(compaction, writer)
            self.is_stepping = False
            return has_more

        def counted(handle: int, data: bytes | memoryview, offset: int) -> int:
            if self.is_stepping:
                self.written[-1] += len(data)
            return pwrite(handle, data, offset)

        monkeypatch.setattr(Compaction, "chore", step)
        monkeypatch.setattr(fs, "pwrite", counted)


def opened(fs: FaultFS) -> FileStorage:
    salts = random.Random(1)
    return FileStorage("/s", fs=fs, threaded=False, salts=salts, segment_bytes=8 * MIB)


def with_a_sparse_segment(fs: FaultFS) -> FileStorage:
    """A stream whose first segment has a quarter of its messages left, and is not compacted yet."""
    storage = opened(fs)
    store = storage.create_stream("S")
    for number in range(1, MESSAGES + 1):
        store.append(b"s.%d" % (number % 7), b"", b"%d" % number, number)
    while len(store.segments) == 1:
        store.append(b"s.0", b"", b"x" * 5000, MESSAGES)
    storage.flush(lambda error: None)
    store.remove([number for number in range(1, store.last_seq + 1) if number % 4])
    return storage


def payload_of(store: Any, sequence: int) -> bytes:
    payload: bytes = store.get(sequence).payload
    return payload


def flush(storage: FileStorage) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert outcome == [None]


def test_records_and_footer_are_written_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultFS()
    storage = with_a_sparse_segment(fs)
    steps = Steps(monkeypatch, fs)
    for _ in range(3):
        flush(storage)
    (copy,) = [path for path in fs.files() if path.endswith(".1.seg")]
    assert (
        len(steps.written) - steps.of_footer >= len(KEPT) // 1000
    )  # each record is read for itself
    assert steps.of_footer > 20
    assert (
        max(steps.written) <= MIB + 8192
    )  # the first has a header, and a step may end with a record more
    content = fs.content(copy)
    assert decode_trailer(content[-TRAILER_BYTES:], len(content)) is not None
    storage = opened(fs.kill())
    store = storage.open_stream("S")
    assert [payload_of(store, number) for number in KEPT[::999]] == [
        b"%d" % number for number in KEPT[::999]
    ]
    assert store.count(None, 1) == len(range(4, store.last_seq + 1, 4))
    assert storage.report == []


def test_one_that_is_stopped_between_two_steps_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = FaultFS()
    storage = with_a_sparse_segment(fs)
    steps = Steps(monkeypatch, fs)

    def stop() -> None:
        if steps.of_footer == 10:
            storage._cache.compactor.stop()

    steps.between = stop
    for _ in range(3):
        flush(storage)
    assert steps.of_footer == 10
    assert not [path for path in fs.files() if path.endswith((".tmp", ".1.seg"))]
    storage = opened(fs.kill())
    assert payload_of(storage.open_stream("S"), 4) == b"4"
    assert storage.report == []


def test_a_disk_that_is_full_between_two_steps_keeps_the_former_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = FaultFS()
    storage = with_a_sparse_segment(fs)
    steps = Steps(monkeypatch, fs)

    def fill() -> None:
        if steps.of_footer == 10:
            fs.capacity = sum(len(fs.content(path)) for path in fs.files())

    steps.between = fill
    for _ in range(3):
        flush(storage)
    assert not [path for path in fs.files() if path.endswith((".tmp", ".1.seg"))]
    assert payload_of(storage.open_stream("S"), 4) == b"4"
