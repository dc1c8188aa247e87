"""The disk in memory that a store was opened on."""

from __future__ import annotations

from faultfs import FaultFS
from headrace.broker.store import FileStorage

__all__ = ["disk_of"]


def disk_of(storage: FileStorage) -> FaultFS:
    disk = storage._fs
    assert isinstance(disk, FaultFS)
    return disk
