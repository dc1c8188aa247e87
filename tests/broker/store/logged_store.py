"""A store whose commit log is in use after a few commits, and the disk that a power cut leaves of it."""

from __future__ import annotations

import random
from typing import Any

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.commit.commit_log import CommitLog, LogShape

SHAPE = LogShape(file_bytes=12_000, after=3)
LOGS = ["/s/commit-log/0.log", "/s/commit-log/1.log"]
BIG = 1 << 40


class Store:
    """A store with a few streams. Unless ``tidies``, nothing is done for its log between commits."""

    def __init__(self, fs: FaultFS | None = None, *, tidies: bool = True, **options: Any) -> None:
        self.fs = fs or FaultFS()
        options = {"commit_log": SHAPE, "salts": random.Random(1), **options}
        self.storage = FileStorage("/s", fs=self.fs, threaded=False, **options)
        self.tidies = tidies
        self.number = 0
        for name in "AB":
            if name not in self.storage.streams():
                self.storage.create_stream(name)
        self.flush()

    @property
    def log(self) -> CommitLog:
        log = self.storage._writer.log
        assert log is not None
        return log

    def flush(self) -> Exception | None:
        outcome: list[Exception | None] = []
        self.storage.flush(outcome.append)
        return outcome[0]

    def publish(self, count: int = 1, *, names: str = "AB", size: int = 50) -> None:
        for _ in range(count):
            self.number += 1
            for name in names:
                self.storage.open_stream(name).append(b"s", b"", b"%d" % self.number * size, 1)
            if not self.tidies:
                self.log.wants_tidying = False
            assert self.flush() is None

    def shown(self, name: str = "A") -> list[int]:
        store = self.storage.open_stream(name)
        return [m.sequence for m in store.read(1, None, 10_000, BIG, BIG)]

    def used(self) -> int:
        """How many commits went into the log."""
        return self.log.batches


def without_unsynced(fs: FaultFS) -> FaultFS:
    """The disk as the power leaves it when nothing comes to it that was not synced."""
    fs.lose_unsynced()
    for node in fs._handles.values():
        node.content = bytearray(node.synced)
    return fs.kill()
