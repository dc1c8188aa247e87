"""A store says how far the disk is behind."""

from __future__ import annotations

import threading
from pathlib import Path

from headrace.broker.store import FileStorage


def test_bytes_are_pending_from_their_flush_to_its_completion(tmp_path: Path) -> None:
    finished = threading.Event()
    storage = FileStorage(tmp_path / "store", notify=finished.set)
    try:
        stream = storage.create_stream("S")
        assert storage.pending_bytes == 0
        stream.append(b"a", b"", b"x" * 1000, 1)
        storage.flush(lambda error: None)
        assert storage.pending_bytes >= 1000
        assert finished.wait(5)
        storage.complete()
        assert storage.pending_bytes == 0
    finally:
        storage.close()
