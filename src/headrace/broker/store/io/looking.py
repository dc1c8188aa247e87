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
        self._paths: dict[int, str] = {}
        self._over: dict[str, list[tuple[int, bytes]]] = {}  # what was written, by path
        self.is_at = self._files.is_at
        self.kind = self._files.kind
        self.listdir = self._files.listdir
        self.exists = self._files.exists
        self.lock = self._files.lock
        self.release = self._files.release

    def open(self, path: str, *, create: bool = False) -> int:
        if not create:
            handle = self._files.open(path)
            self._paths[handle] = path
            return handle
        handle = os.memfd_create("headrace-looking")
        self._made.add(handle)
        return handle

    def close(self, handle: int) -> None:
        if handle in self._made:
            self._made.discard(handle)
            os.close(handle)
        else:
            self._paths.pop(handle, None)
            self._files.close(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        data = self._files.pread(handle, length, offset)
        over = self._over.get(self._paths.get(handle, ""))
        if over is None:
            return data
        mixed = bytearray(data)
        for at, piece in over:
            start, stop = max(at, offset), min(at + len(piece), offset + length)
            if start < stop:
                mixed.extend(bytes(max(0, stop - offset - len(mixed))))
                mixed[start - offset : stop - offset] = piece[start - at : stop - at]
        return bytes(mixed)

    def size(self, handle: int) -> int:
        over = self._over.get(self._paths.get(handle, ""), ())
        return max([self._files.size(handle), *(at + len(piece) for at, piece in over)])

    def pwrite(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        if handle in self._made:
            return self._files.pwrite(handle, data, offset)
        self._over.setdefault(self._paths[handle], []).append((offset, bytes(data)))
        return len(data)

    def truncate(self, handle: int, length: int) -> None:
        if handle in self._made:
            self._files.truncate(handle, length)
            return
        path = self._paths[handle]
        over = self._over.get(path, ())
        self._over[path] = [(at, piece[: length - at]) for at, piece in over if at < length]

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
