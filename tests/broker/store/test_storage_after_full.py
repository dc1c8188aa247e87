"""What is appended after a refused flush is on disk before its own flush says so."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.errors import StoreFullError


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("staged_behind", [0, 1, 5])
def test_after_a_full_disk_no_flush_succeeds_without_its_messages(
    memory: bool, staged_behind: int
) -> None:
    fs = FaultFS(capacity=60_000)
    notified = threading.Event()
    storage = FileStorage("/data/store", fs=fs, segment_bytes=1 << 20, notify=notified.set)
    file = storage.create_stream("F")
    store = storage.create_stream("M", memory=True) if memory else file
    outcomes: list[tuple[int, int, Exception | None]] = []

    def append() -> int:
        store.append(b"s", b"", b"x" * 5000, 1)
        return file.append(b"s", b"", b"x" * 5000, 1) if memory else store.last_seq

    def flush() -> None:
        last = store.last_seq
        storage.flush(lambda error: outcomes.append((last, store.durable_seq, error)))

    flush()
    for _ in range(40):
        append()
        flush()
        for _ in range(staged_behind):  # staged while the flush is under way
            append()
        while storage.pending_flushes:
            assert notified.wait(10)
            notified.clear()
            storage.complete()
    assert any(isinstance(error, StoreFullError) for _, _, error in outcomes)
    for last, durable, error in outcomes:
        assert error is not None or durable >= last
    kept = file.durable_seq
    storage.close()
    again = FileStorage("/data/store", fs=fs.kill(), segment_bytes=1 << 20, threaded=False)
    assert again.open_stream("F").last_seq == kept
    again.close()


def test_a_disk_that_has_room_again_takes_messages_again(tmp_path: Path) -> None:
    fs = FaultFS(capacity=40_000)
    storage = FileStorage("/data/store", fs=fs, segment_bytes=1 << 20, threaded=False)
    store = storage.create_stream("S")
    errors: list[Exception | None] = []
    while not any(errors):
        store.append(b"s", b"", b"x" * 5000, 1)
        storage.flush(errors.append)
    kept = store.last_seq
    fs.capacity = 200_000
    store.append(b"s", b"", b"y", 1)
    storage.flush(errors.append)
    assert errors[-1] is None
    assert store.durable_seq == kept + 1
    storage.close()


def test_a_store_on_a_full_disk_opens_and_can_be_emptied() -> None:
    fs = FaultFS()
    storage = FileStorage("/data/store", fs=fs, threaded=False)
    store = storage.create_stream("S")
    for _ in range(10):
        store.append(b"s", b"", b"x" * 5000, 1)
    errors: list[Exception | None] = []
    storage.flush(errors.append)
    storage.close()
    fs.overwrite("/data/store/lock", b"")  # nor is there room for the name of who has it
    fs.capacity = sum(len(fs.content(path)) for path in fs.files())
    storage = FileStorage("/data/store", fs=fs, threaded=False)
    assert storage.open_stream("S").purge(None) == 10
    storage.flush(errors.append)
    storage.delete_stream("S")
    storage.flush(errors.append)
    assert errors == [None] * 3
    storage.close()
