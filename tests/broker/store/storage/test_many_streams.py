"""Many streams deleted at once: few syncs, and their files go one stream at a time between the commits."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.storage.layout import Layout
from headrace.clock import ManualClock

MANY = 20


class CountingFS(FaultFS):
    """Counts the syncs of directories."""

    def __init__(self) -> None:
        super().__init__()
        self.directory_syncs: list[str] = []

    def fsync_dir(self, path: str) -> None:
        self.directory_syncs.append(path)
        super().fsync_dir(path)


def opened(fs: FaultFS) -> FileStorage:
    return FileStorage("/store", fs=fs, clock=ManualClock(), threaded=False, salts=random.Random(1))


def test_deleting_many_syncs_each_directory_once() -> None:
    fs = CountingFS()
    storage = opened(fs)
    for number in range(MANY):
        storage.create_stream(f"S{number}").append(b"a", b"", b"x", 1)
    storage.flush(lambda error: None)
    fs.directory_syncs.clear()
    for number in range(MANY):
        storage.delete_stream(f"S{number}")
    storage.flush(lambda error: None)
    assert sorted(fs.directory_syncs) == ["/store/streams", "/store/trash"]
    assert not fs.listdir("/store/trash")  # without a commit thread all is tidied up at once
    reopened = opened(fs.kill())
    assert reopened.streams() == []


def test_what_deleted_streams_have_left_goes_one_at_a_time() -> None:
    fs = FaultFS()
    layout = Layout(fs, "/store")
    layout.prepare(lambda finding: None)
    for _ in range(3):
        place = layout.trash()
        fs.mkdir(place)
        fs.close(fs.open(f"{place}/file", create=True))
    fs.mkdir("/store/trash/strange")
    found: list[Any] = []
    chore = layout.empty_trash(found.append)
    writer: Any = SimpleNamespace(fs=fs)
    left = [len(fs.listdir("/store/trash"))]
    while chore(writer):
        left.append(len(fs.listdir("/store/trash")))
    assert left == [4, 3, 2, 1]
    assert fs.listdir("/store/trash") == ["strange"]
    assert [finding.path for finding in found] == ["/store/trash/strange"]
    assert not chore(writer)  # again, later: it stays, and is named once
    assert len(found) == 1
