"""What is on its way to the disk: what the next flush will take, and what it takes to undo one."""

from __future__ import annotations

from ....errors import StoreError
from ..commit.commit import Batch
from ..commit.writer import Work
from ..log.file_log import FileLog
from ..log.memory_log import MemoryLog
from ..log.removals import Part

__all__ = ["Flight", "Staged", "ignore", "ignore_outcome"]


class Staged:
    """What the next flush will take: streams that changed, were made or deleted, and file work."""

    def __init__(self) -> None:
        self.dirty: dict[FileLog | MemoryLog, None] = {}
        self.created: list[FileLog | MemoryLog] = []
        self.deleted: list[tuple[str, str | None, FileLog | MemoryLog | None]] = []
        self.work = Work()
        self.touched = False  # whether the owner changed something, and is going to flush it


class Flight:
    """A batch on its way, and what it would take to undo it."""

    def __init__(
        self, batch: Batch, staged: Staged, refused: StoreError | None, *, own: bool
    ) -> None:
        self.own = own  # nobody has asked for it
        self.batch = batch
        self.parts: list[tuple[FileLog | MemoryLog, Part]] = []
        self.staged = staged
        self.refused = refused  # it was built on a batch that failed so, and is taken back


def ignore() -> None:
    """Nobody cares."""


def ignore_outcome(_: Exception | None) -> None:
    """Nobody waits for it."""
