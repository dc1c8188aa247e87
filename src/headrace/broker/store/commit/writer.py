"""Putting batches on disk: the order of writes and syncs, and undoing what did not fit.

The order within a batch is what recovery relies on: directories and segment files first, synced; then
the metadata, which may speak of them, synced; then the removal of deleted streams. So whatever moment
the power goes, metadata never speaks of messages that are not there.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from ....errors import StoreFailedError
from ..format.entries import MetaChange, SpareWrite
from ..io.files import FileSystem, Handles, explain, is_full, write_all
from ..io.syncing import Syncing
from ..meta.journal_writer import JournalWriter
from .durations import Durations

_FIRST_ALLOCATION: Final = 64 * 1024
_GROWTH: Final = 4
MARGIN: Final = 16 * 1024
"""Space kept free behind the messages, so that removals can be recorded on a full disk."""


class SegmentWrite(msgspec.Struct, eq=False):
    """Records for one segment file, at consecutive offsets from ``offset``."""

    path: str
    offset: int
    buffers: list[bytes]
    header: bytes | None  # the file is to be created with this
    truncate: bool  # cut the file at ``offset`` first
    messages: bool  # whether it carries messages, or only statements about them
    ceiling: int  # how large the file is going to become


class CopyWrite(NamedTuple):
    """Removals said again beside a segment; see ``format/removal_copy``."""

    path: str
    offset: int
    data: bytes


class Work(msgspec.Struct, eq=False):
    """What one flush wants on disk."""

    directories: list[str] = msgspec.field(default_factory=list)
    writes: list[SegmentWrite] = msgspec.field(default_factory=list)
    copies: list[CopyWrite] = msgspec.field(default_factory=list)
    marks: list[tuple[str, bytes]] = msgspec.field(default_factory=list)  # watermark files
    meta: MetaChange | None = None
    retired: list[tuple[str, str]] = msgspec.field(
        default_factory=list
    )  # stream directory, where it goes

    def __bool__(self) -> bool:
        return bool(self.directories or self.writes or self.meta or self.retired or self.marks)


class Writer:
    """Carries out work. Belongs to the commit thread.

    ``sync`` is whether a batch is synced before it counts as done. ``meta_log`` writes metadata.
    ``in_place`` tells whether the store's directory is still where it was. With ``at_once``
    several files are synced at a time, by threads; with an ``anchor``, a file that stays open, by one call
    for its whole file system. ``monotonic_ns`` measures how long the disk takes to sync.
    """

    def __init__(
        self,
        fs: FileSystem,
        sync: bool,
        meta_log: JournalWriter,
        in_place: Callable[[], bool] = lambda: True,
        handles: int = 256,
        monotonic_ns: Callable[[], int] = lambda: 0,
        *,
        at_once: bool = False,
        anchor: int | None = None,
    ) -> None:
        self.fs = fs
        self._monotonic_ns = monotonic_ns
        self.syncs = Durations()
        """How long the disk took to sync the segments of a commit."""
        self._sync = sync
        self._meta = meta_log
        self._in_place = in_place
        self.stale_spares: set[str] = set()
        """Copies of metadata that could not be written; whoever takes a path out writes it anew."""
        self.handles = Handles(fs, handles)
        self.syncing = Syncing(
            fs, self.handles, at_once=at_once, anchor=anchor, monotonic_ns=monotonic_ns
        )
        self._allocated: dict[str, int] = {}
        self._preallocate = True
        self._unsynced: dict[str, None] = {}
        self._dead: deque[str] = deque()

    def commit(self, group: list[Work]) -> None:
        """Carry out a group as one. Raises StoreFullError with nothing left of it, or StoreFailedError."""
        undo: list[_Undo] = []
        touched: dict[str, None] = {}
        directories: dict[str, None] = {}
        doing = "writing"
        try:
            for work in group:
                for directory in work.directories:
                    doing = f"creating {directory}"
                    self._make_directory(directory, directories, undo)
            for path, writes in _by_path(group).items():
                doing = f"writing {path}"
                self._write_segment(path, writes, touched, directories, undo)
            self._sync_all(touched, directories)
            doing = "looking for the store's files"
            self._check_in_place(touched)
            doing = "writing the metadata journal"
            self._meta.write([work.meta for work in group if work.meta is not None], self._sync)
        except OSError as error:
            if is_full(error):
                self._undo(undo, directories)
            raise explain(error, doing) from error
        self._finish(group)

    def _check_in_place(self, touched: dict[str, None]) -> None:
        """Raise StoreFailedError if somebody has taken the files away that were written.

        Writing to a removed file works, and so does syncing it. What was written is gone all the same.
        """
        if not self._in_place():
            raise StoreFailedError("the store's directory was removed or replaced while in use")
        for path in touched:
            if not self.fs.is_at(self.handles.get(path), path):
                raise StoreFailedError(f"{path} was removed while in use")

    def _finish(self, group: list[Work]) -> None:
        """After everything that can be undone: watermarks and deletions."""
        doing = ""
        try:
            for work in group:
                for spare in work.meta.spares if work.meta is not None else ():
                    doing = f"writing {spare.path}"
                    self._write_spare(spare)
            for path, offset, data in [copy for work in group for copy in work.copies]:
                doing = f"writing {path}"
                self._write_beside(path, data, offset)
            for path, mark in {path: mark for work in group for path, mark in work.marks}.items():
                doing = f"writing {path}"
                self._write_beside(path, mark, 0)
            changed: dict[str, None] = {}
            for work in group:
                for source, target in work.retired:
                    doing = f"deleting {source}"
                    self._retire(source, target, changed)
            for directory in changed:
                doing = f"syncing {directory}"
                self.fs.fsync_dir(directory)
        except OSError as error:
            raise StoreFailedError(f"{doing}: {error.strerror or error}") from error

    def _write_spare(self, spare: SpareWrite) -> None:
        """Write a copy of metadata. Where that fails for lack of room, it is written anew later."""
        path = spare.path
        if not spare.whole and path in self.stale_spares:
            return
        try:
            if spare.whole:
                self._replace(path, spare.encode())
            else:
                write_all(self.fs, self.handles.get(path), spare.encode(), spare.offset)
        except OSError as error:
            if not is_full(error) and error.errno != errno.ENOENT:
                raise
            self.stale_spares.add(path)

    def _replace(self, path: str, data: bytes) -> None:
        """Put a new file in the place of what is there, if anything is."""
        fs = self.fs
        replaces, draft = fs.exists(path), path + ".tmp"
        self.handles.drop(path)
        if not replaces:
            write_all(fs, self.handles.get(path, create=True), data, 0)
            return
        if fs.exists(draft):
            fs.unlink(draft)
        handle = fs.open(draft, create=True)
        try:
            write_all(fs, handle, data, 0)
            fs.fdatasync(handle)
        finally:
            fs.close(handle)
        fs.rename(draft, path)

    def _write_beside(self, path: str, data: bytes, offset: int) -> None:
        try:
            write_all(self.fs, self._open_beside(path), data, offset)
        except OSError as error:
            # The batch is on disk. Without the hint, damage is noticed later, or costs more.
            if not is_full(error):
                raise

    def _open_beside(self, path: str) -> int:
        try:
            return self.handles.get(path)
        except FileNotFoundError:
            return self.handles.get(path, create=True)

    def _make_directory(
        self, directory: str, directories: dict[str, None], undo: list[_Undo]
    ) -> None:
        self.fs.mkdir(directory)
        undo.append((lambda: self.fs.rmdir(directory), None))
        directories[directory.rpartition("/")[0]] = None

    def _write_segment(
        self,
        path: str,
        writes: list[SegmentWrite],
        touched: dict[str, None],
        directories: dict[str, None],
        undo: list[_Undo],
    ) -> None:
        first = writes[0]
        handle = self.handles.get(path, create=first.header is not None)
        if first.header is not None:
            undo.append((lambda: self._remove(path), None))
            self._allocated[path] = 0
            write_all(self.fs, handle, first.header, 0)
            self._allocated[path] = len(first.header)
            directories[path.rpartition("/")[0]] = None
        else:
            if path not in self._allocated:
                self._allocated[path] = self.fs.size(handle)
            if first.truncate:
                self._cut(path, handle, first.offset)
            undo.append((lambda: self._cut(path, self.handles.get(path), first.offset), path))
        if len(writes) == 1:
            data, messages = b"".join(first.buffers), first.messages
        else:
            data = b"".join([buffer for write in writes for buffer in write.buffers])
            messages = any(write.messages for write in writes)
        if data:
            end = first.offset + len(data)
            self._reserve(path, handle, end, first.ceiling, messages)
            write_all(self.fs, handle, data, first.offset)
            if end > self._allocated[path]:
                self._allocated[path] = end
        touched[path] = None

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
                if not self.fs.allocate(handle, have, goal - have):
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
        self.fs.truncate(handle, length)
        self._allocated[path] = length

    def _remove(self, path: str) -> None:
        self.forget(path)
        self.fs.unlink(path)

    def _undo(self, undo: list[_Undo], directories: dict[str, None]) -> None:
        """Leave nothing of a refused batch, not even after a power cut."""
        try:
            for step, _ in reversed(undo):
                step()
            for _, path in undo:
                if path is not None and self._sync:
                    self.fs.fdatasync(self.handles.get(path))
            for directory in directories:
                if self.fs.exists(directory):
                    self.fs.fsync_dir(directory)
        except OSError as error:
            raise StoreFailedError(
                f"could not take back a batch that did not fit: {error.strerror}"
            ) from error

    def _sync_all(self, touched: dict[str, None], directories: dict[str, None]) -> None:
        """Sync files, then the directories that name them. An error here is final: never retried."""
        if self._sync:
            began_ns = self._monotonic_ns()
            self._sync_files(touched, directories)
            self.syncs.add(self._monotonic_ns() - began_ns)
        else:
            self._unsynced.update(touched)
            self._sync_files({}, directories)

    @property
    def has_unsynced(self) -> bool:
        """Whether something was written that was not synced yet."""
        return bool(self._unsynced) or self._meta.has_unsynced

    def sync_pending(self) -> None:
        """Sync everything written since the last time. Raises StoreFailedError."""
        pending, self._unsynced = self._unsynced, {}
        try:
            self._sync_files(pending, {})
            self._meta.sync()
        except OSError as error:
            what = "the metadata journal"
            raise StoreFailedError(f"syncing {what}: {error.strerror or error}") from error

    def _sync_files(self, paths: dict[str, None], directories: dict[str, None]) -> None:
        failed = self.syncing.sync(list(paths), list(directories))
        if failed is not None:
            path, error = failed
            raise StoreFailedError(f"syncing {path}: {error.strerror or error}") from error

    def _retire(self, source: str, target: str, changed: dict[str, None]) -> None:
        """Take the directory of a deleted stream away; those in ``changed`` are to be synced then."""
        self.handles.drop_under(source)
        self._dead = deque(path for path in self._dead if not path.startswith(source + "/"))
        for path in [path for path in self._allocated if path.startswith(source + "/")]:
            self.forget(path)
        if not self.fs.kind(source):
            return  # somebody was quicker
        if not self.fs.exists(target.rpartition("/")[0]):
            self.fs.mkdir(target.rpartition("/")[0])  # somebody has tidied up
        self.fs.rename(source, target)
        changed[target.rpartition("/")[0]] = None
        changed[source.rpartition("/")[0]] = None

    def forget(self, path: str) -> None:
        self.handles.drop(path)
        self._allocated.pop(path, None)
        self._unsynced.pop(path, None)

    def remove(self, *paths: str) -> None:
        """Remove the files of a dead segment, after all those given before.

        The order matters: a later segment may hold the record that an earlier one is dead. If a
        removal is refused, it and those after it wait for the next one, or the next start.
        """
        if self._unsynced:
            self.sync_pending()  # what says that it is dead, where a batch does not wait for that
        for path in paths:
            self.forget(path)
        self._dead += paths
        try:
            while self._dead:
                path = self._dead[0]
                if self.fs.exists(path):  # or else its stream was deleted meanwhile
                    self.fs.unlink(path)
                directory = path.rpartition("/")[0]
                if path.endswith(".seg") and self.fs.exists(directory):
                    self.fs.fsync_dir(directory)
                self._dead.popleft()
        except OSError as error:
            if not is_full(error):
                raise explain(error, f"removing {path}") from error

    def close(self) -> None:
        self.syncing.close()
        self.handles.close()


_Undo = tuple[Callable[[], None], str | None]
"""A step back, and the file to sync after it."""


def _by_path(group: list[Work]) -> dict[str, list[SegmentWrite]]:
    writes: dict[str, list[SegmentWrite]] = {}
    for work in group:
        for write in work.writes:
            writes.setdefault(write.path, []).append(write)
    return writes
