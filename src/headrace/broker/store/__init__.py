"""Durability: streams of messages and small values on a disk, or in memory.

The store knows neither NATS nor an event loop. Its owner calls it on one thread; a commit thread
writes. ``FileStorage`` and ``MemoryStorage`` have the shape of ``Storage`` in ``core/ports.py``. ``recovery``
opens a stream's directory.
"""

from __future__ import annotations

from .io.files import FileSystem, LocalFiles
from .io.findings import Finding
from .storage.memory import MemoryStorage
from .storage.storage import FileStorage

__all__ = ["FileStorage", "FileSystem", "Finding", "LocalFiles", "MemoryStorage"]
