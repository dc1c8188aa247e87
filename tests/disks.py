"""The disk in memory that a store was opened on."""

from __future__ import annotations

from headrace.broker.store import FileStorage
from headrace.testing.faultfs import FaultFS

__all__ = ["disk_of"]


def disk_of(storage: FileStorage) -> FaultFS:
    disk = storage._fs
    assert isinstance(disk, FaultFS)
    return disk
