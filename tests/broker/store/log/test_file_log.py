"""One stream's files: what is staged, what is on the disk, and which files there are."""

from __future__ import annotations

import random

import pytest

from disks import disk_of
from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.log.file_log import FileLog
from headrace.errors import StoreError
from headrace.message import StoredMessage

BIG = 1 << 40
SEGMENT_BYTES = 8192


def opened(fs: FaultFS) -> FileStorage:
    salts = random.Random(1)
    return FileStorage("/s", fs=fs, threaded=False, segment_bytes=SEGMENT_BYTES, salts=salts)


@pytest.fixture
def storage() -> FileStorage:
    return opened(FaultFS())


@pytest.fixture
def log(storage: FileStorage) -> FileLog:
    found = storage.create_stream("S")
    assert isinstance(found, FileLog)
    return found


def flush(storage: FileStorage) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert outcome == [None]


def files(storage: FileStorage) -> int:
    return sum(path.endswith(".seg") for path in disk_of(storage).files())


def everything(log: FileLog) -> list[StoredMessage]:
    return log.read(1, None, BIG, BIG, BIG)


def fill(storage: FileStorage, log: FileLog, count: int, size: int = 1000) -> None:
    for number in range(count):
        log.append(b"a.%d" % (number % 3), b"", b"%d" % (number % 10) * size, number)
        if number % 5 == 4:
            flush(storage)
    flush(storage)


def test_what_is_staged_can_be_read_and_is_not_durable(storage: FileStorage, log: FileLog) -> None:
    assert log.append(b"a", b"NATS/1.0\r\n\r\n", b"x", 7) == 1
    assert everything(log) == [StoredMessage(1, b"a", b"NATS/1.0\r\n\r\n", b"x", 7)]
    assert (log.last_seq, log.durable_seq) == (1, 0)
    assert log.staged_bytes > 0
    flush(storage)
    assert (log.last_seq, log.durable_seq, log.staged_bytes) == (1, 1, 0)


def test_what_was_only_staged_is_gone_with_the_process_and_its_sequence_is_free(
    storage: FileStorage, log: FileLog
) -> None:
    fill(storage, log, 5)
    log.append(b"a", b"", b"staged", 9)
    again = opened(disk_of(storage).kill()).open_stream("S")
    assert [m.sequence for m in again.read(1, None, BIG, BIG, BIG)] == [1, 2, 3, 4, 5]
    assert again.append(b"a", b"", b"another", 9) == 6


def test_messages_go_on_in_another_file_when_one_is_full(
    storage: FileStorage, log: FileLog
) -> None:
    fill(storage, log, 40)
    assert files(storage) >= 40 * 1000 // SEGMENT_BYTES
    assert [m.sequence for m in everything(log)] == [*range(1, 41)]
    again = opened(disk_of(storage).kill()).open_stream("S")
    assert again.read(1, None, BIG, BIG, BIG) == everything(log)
    assert again.state == log.state


def test_a_file_goes_when_its_last_message_has_gone(storage: FileStorage, log: FileLog) -> None:
    fill(storage, log, 40)
    before = files(storage)
    log.trim(max_messages=5)
    flush(storage)
    flush(storage)
    assert files(storage) < before / 2
    again = opened(disk_of(storage).kill()).open_stream("S")
    assert [m.sequence for m in again.read(1, None, BIG, BIG, BIG)] == [*range(36, 41)]
    assert again.append(b"a", b"", b"", 99) == 41


def test_a_message_larger_than_a_file_has_one_of_its_own(
    storage: FileStorage, log: FileLog
) -> None:
    log.append(b"a", b"", b"s", 1)
    log.append(b"a", b"", b"x" * 3 * SEGMENT_BYTES, 2)
    log.append(b"a", b"", b"t", 3)
    flush(storage)
    assert [len(m.payload) for m in everything(log)] == [1, 3 * SEGMENT_BYTES, 1]


def test_a_failed_flush_takes_back_what_was_staged_and_nothing_more_is_taken(
    storage: FileStorage, log: FileLog
) -> None:
    fill(storage, log, 5)
    log.remove([2])
    log.append(b"a", b"", b"lost", 9)
    disk = disk_of(storage)
    for operation in range(disk.operations, disk.operations + 20):
        disk.fail(operation, "eio")
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert isinstance(outcome[0], OSError | StoreError)
    assert [m.sequence for m in everything(log)] == [1, 2, 3, 4, 5]
    assert storage.failed is not None
    with pytest.raises(StoreError):
        log.append(b"a", b"", b"more", 10)
