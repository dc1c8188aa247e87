"""What is on its way to the disk: what the next flush will take, and what it takes to undo one."""

from __future__ import annotations

import msgspec

from ....errors import StoreError
from ..commit.commit import Batch
from ..commit.writer import Work
from ..log.file_log import FileLog
from ..log.memory_log import MemoryLog
from ..log.removals import Part


class Staged(msgspec.Struct, eq=False):
    """What the next flush will take: streams that changed, were made or deleted, and file work."""

    dirty: dict[FileLog | MemoryLog, None] = msgspec.field(default_factory=dict)
    created: list[FileLog | MemoryLog] = msgspec.field(default_factory=list)
    deleted: list[tuple[str, str | None, FileLog | MemoryLog | None]] = msgspec.field(
        default_factory=list
    )
    work: Work = msgspec.field(default_factory=Work)
    touched: bool = False  # whether the owner changed something, and is going to flush it


class Flight(msgspec.Struct, eq=False):
    """A batch on its way, and what it would take to undo it."""

    batch: Batch
    staged: Staged
    refused: StoreError | None  # it was built on a batch that failed so, and is taken back
    own: bool  # nobody has asked for it
    parts: list[tuple[FileLog | MemoryLog, Part]] = msgspec.field(default_factory=list)


def ignore() -> None:
    """Nobody cares."""


def ignore_outcome(_: Exception | None) -> None:
    """Nobody waits for it."""
