"""Writing to segment files: making them, reserving room for them, and taking back what did not fit."""

from __future__ import annotations

import errno
from typing import Final

import msgspec

from ....errors import StoreFailedError
from ..io.files import FileSystem, Handles, is_full, write_all

_FIRST_ALLOCATION: Final = 64 * 1024
_GROWTH: Final = 4
_MADE: Final = -1
_CREATED: Final = -2
MARGIN: Final = 16 * 1024
"""Space kept free behind the messages, so that removals can be recorded on a full disk."""


class SegmentWrite(msgspec.Struct, eq=False):
    """Records for one segment file, at consecutive offsets from ``offset``."""

    path: str
    offset: int
    buffers: list[bytes]
    nbytes: int
    header: bytes | None  # the file is to be created with this
    truncate: bool  # cut the file at ``offset`` first
    messages: bool  # whether it carries messages, or only statements about them
    ceiling: int  # how large the file is going to become


class Attempt(msgspec.Struct, eq=False):
    """What a commit has done so far: files and directories to be synced, and the way back."""

    touched: dict[str, None] = msgspec.field(default_factory=dict)
    directories: dict[str, None] = msgspec.field(default_factory=dict)
    undo: list[tuple[str, int]] = msgspec.field(default_factory=list)
    """Steps back: which file to cut, and where; or what to remove."""


class SegmentFiles:
    """The segment files that are written to. Belongs to the commit thread, as ``handles`` do.

    ``sync`` is whether what is taken back has to be so on disk.
    """

    def __init__(self, fs: FileSystem, handles: Handles, *, sync: bool) -> None:
        self._fs = fs
        self._handles = handles
        self._sync = sync
        self._allocated: dict[str, int] = {}
        self._preallocate = True

    def make_directory(self, directory: str, attempt: Attempt) -> None:
        """Make a stream's directory. Raises OSError."""
        self._fs.mkdir(directory)
        attempt.undo.append((directory, _MADE))
        attempt.directories[directory.rpartition("/")[0]] = None

    def write(self, path: str, writes: list[SegmentWrite], attempt: Attempt) -> None:
        """Write what follows in a file, not synced. Raises OSError."""
        first = writes[0]
        handle = self._handles.get(path, create=first.header is not None)
        if first.header is not None:
            attempt.undo.append((path, _CREATED))
            self._allocated[path] = 0
            write_all(self._fs, handle, first.header, 0)
            self._allocated[path] = len(first.header)
            attempt.directories[path.rpartition("/")[0]] = None
        else:
            if path not in self._allocated:
                self._allocated[path] = self._fs.size(handle)
            if first.truncate:
                self._cut(path, handle, first.offset)
            attempt.undo.append((path, first.offset))
        if len(writes) == 1:
            data, messages = b"".join(first.buffers), first.messages
        else:
            data = b"".join([buffer for write in writes for buffer in write.buffers])
            messages = any(write.messages for write in writes)
        if data:
            end = first.offset + len(data)
            self._reserve(path, handle, end, first.ceiling, messages)
            write_all(self._fs, handle, data, first.offset)
            if end > self._allocated[path]:
                self._allocated[path] = end
        attempt.touched[path] = None

    def _reserve(self, path: str, handle: int, end: int, ceiling: int, messages: bool) -> None:
        """Preallocate in growing steps; small files stay small, large ones grow without metadata."""
        have = self._allocated[path]
        need = end + MARGIN
        if need <= have or not self._preallocate:
            return
        if end <= have and not messages:
            return  # the margin is there for exactly this
        target = max(_FIRST_ALLOCATION, have * _GROWTH)
        target = max(need, min(target, ceiling + MARGIN))
        for goal in (target, need) if target > need else (need,):
            try:
                if not self._fs.allocate(handle, have, goal - have):
                    self._preallocate = False
                    return
                self._allocated[path] = goal
                return
            except OSError as error:
                if not is_full(error):
                    raise
        if messages:
            raise OSError(errno.ENOSPC, "no space left to extend the segment")

    def _cut(self, path: str, handle: int, length: int) -> None:
        self._fs.truncate(handle, length)
        self._allocated[path] = length

    def _remove(self, path: str) -> None:
        self.forget(path)
        self._fs.unlink(path)

    def take_back(self, attempt: Attempt) -> None:
        """Leave nothing of a refused batch, not even after a power cut. Raises StoreFailedError."""
        try:
            for path, step in reversed(attempt.undo):
                if step == _MADE:
                    self._fs.rmdir(path)
                elif step == _CREATED:
                    self._remove(path)
                else:
                    self._cut(path, self._handles.get(path), step)
            for path, step in attempt.undo:
                if step >= 0 and self._sync:
                    self._fs.fdatasync(self._handles.get(path))
            for directory in attempt.directories:
                if self._fs.exists(directory):
                    self._fs.fsync_dir(directory)
        except OSError as error:
            raise StoreFailedError(
                f"could not take back a batch that did not fit: {error.strerror}"
            ) from error

    def known_below(self, directory: str) -> list[str]:
        """The files in a directory that were written to."""
        return [path for path in self._allocated if path.startswith(directory + "/")]

    def forget(self, path: str) -> None:
        """Close a file, and know nothing of it any more."""
        self._handles.drop(path)
        self._allocated.pop(path, None)
