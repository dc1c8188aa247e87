"""Files as they are, for whoever only looks: what would be changed on the disk is not.

A store opened with these recovers as it would at a start, and leaves the directory as it found it. Files
it would make are kept in memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from .files import LocalFiles


class ReadOnlyFiles:
    """A ``FileSystem`` that reads and never writes; see ``files.FileSystem``."""

    def __init__(self) -> None:
        self._files: Final = LocalFiles()
        self._made: set[int] = set()
        self.is_at = self._files.is_at
        self.kind = self._files.kind
        self.listdir = self._files.listdir
        self.exists = self._files.exists
        self.lock = self._files.lock
        self.pread = self._files.pread
        self.size = self._files.size
        self.release = self._files.release

    def open(self, path: str, *, create: bool = False) -> int:
        if not create:
            return self._files.open(path)
        handle = os.memfd_create("headrace-looking")
        self._made.add(handle)
        return handle

    def close(self, handle: int) -> None:
        if handle in self._made:
            self._made.discard(handle)
            os.close(handle)
        else:
            self._files.close(handle)

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        return self._files.pwrite(handle, data, offset) if handle in self._made else len(data)

    def truncate(self, handle: int, length: int) -> None:
        if handle in self._made:
            self._files.truncate(handle, length)

    def fdatasync(self, handle: int) -> None:
        """Do nothing, as nothing was written."""

    def sync_whole(self, handle: int, paths: Sequence[str], most_dirty: int) -> bool:
        return True  # nothing was written

    def allocate(self, handle: int, offset: int, length: int) -> bool:
        return False

    def punch(self, handle: int, offset: int, length: int) -> bool:
        return False

    def mkdir(self, path: str) -> None:
        """It is not made."""

    def rename(self, source: str, target: str) -> None:
        """It stays where it is."""

    def unlink(self, path: str) -> None:
        """It stays."""

    def rmdir(self, path: str) -> None:
        """It stays."""

    def fsync_dir(self, path: str) -> None:
        """Do nothing, as nothing was changed."""
