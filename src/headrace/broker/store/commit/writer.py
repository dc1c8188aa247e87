"""Putting batches on disk: the order of writes and syncs, and undoing what did not fit.

The order within a batch is what recovery relies on: directories and segment files first, synced; then
the metadata, which may speak of them, synced; then the removal of deleted streams. So whatever moment
the power goes, metadata never speaks of messages that are not there. But for what is said *ahead* of the
files, and speaks only of what was there before: where the process is killed, the files never lack it.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from ....errors import StoreFailedError
from ..format.entries import MetaChange, SpareWrite
from ..io.files import FileSystem, Handles, explain, is_full, write_all
from ..io.syncing import Syncing
from ..meta.journal import JournalWriter
from .segment_files import Attempt, SegmentFiles, SegmentWrite

BOUNDS_NS: Final = tuple(
    round(seconds * 1e9)
    for seconds in (
        0.00025,
        0.0005,
        0.001,
        0.0025,
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        1,
        2.5,
        5,
    )
)
"""Upper ends of the classes; longer ones are counted in a last class."""


class Durations:
    """Written by one thread; others may read while it writes, and see a moment's numbers."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.total_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_NS, duration_ns)] += 1
        self.total_ns += duration_ns

    def describe(self) -> dict[str, object]:
        """``count``, ``seconds`` in all, and ``at_most``: how many took at most so many seconds."""
        counts = list(self.counts)
        so_far, at_most = 0, {}
        for bound, count in zip(BOUNDS_NS, counts, strict=False):
            so_far += count
            at_most[f"{bound / 1e9:g}"] = so_far
        return {"count": sum(counts), "seconds": self.total_ns / 1e9, "at_most": at_most}


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
        self._segments = SegmentFiles(fs, self.handles, sync=sync)
        self.syncing = Syncing(
            fs, self.handles, at_once=at_once, anchor=anchor, monotonic_ns=monotonic_ns
        )
        self.syncing.unsynced = self._behind
        self._unsynced: dict[str, None] = {}
        self._dead: deque[str] = deque()

    def commit(self, group: list[Work]) -> None:
        """Carry out a group as one. Raises StoreFullError with nothing left of it, or StoreFailedError."""
        attempt = Attempt()
        metas = [work.meta for work in group if work.meta is not None]
        doing = "writing the metadata journal"
        try:
            self._meta.write_ahead(metas)
            for work in group:
                for directory in work.directories:
                    doing = f"creating {directory}"
                    self._segments.make_directory(directory, attempt)
            for path, writes in _by_path(group).items():
                doing = f"writing {path}"
                self._segments.write(path, writes, attempt)
            self._sync_all(attempt)
            self._check_in_place(attempt.touched)
            if self._unsynced and any(meta.image is not None for meta in metas):
                self._sync_segments()  # a journal that is written anew is on disk at once
            doing = "writing the metadata journal"
            self._meta.write(metas, self._sync)
        except OSError as error:
            if is_full(error):
                self._meta.take_back()  # first: it cannot fail, and what is said twice is damage
                self._segments.take_back(attempt)
            raise explain(error, doing) from error
        self._finish(group)

    def _check_in_place(self, paths: Iterable[str]) -> None:
        """Raise StoreFailedError if somebody has taken the files away that were written.

        Writing to a removed file works, and so does syncing it. What was written is gone all the same.
        """
        if not self._in_place():
            raise StoreFailedError("the store's directory was removed or replaced while in use")
        for path in paths:
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
            marks = {path: mark for work in group for path, mark in work.marks}
            for path, mark in marks.items():
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
                self._replace(path, spare.encode(), lasting=spare.lasting)
            else:
                write_all(self.fs, self.handles.get(path), spare.encode(), spare.offset)
        except OSError as error:
            if not is_full(error) and error.errno != errno.ENOENT:
                raise
            self.stale_spares.add(path)

    def _replace(self, path: str, data: bytes, *, lasting: bool) -> None:
        """Put a new file in the place of what is there, if anything is."""
        fs, draft = self.fs, path + ".tmp"
        self.handles.drop(path)
        if not lasting and not fs.exists(path):
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

    def _sync_all(self, attempt: Attempt) -> None:
        """Sync files, then the directories that name them. An error here is final: never retried."""
        if self._sync:
            began_ns = self._monotonic_ns()
            self._sync_files(attempt.touched, attempt.directories)
            self.syncs.add(self._monotonic_ns() - began_ns)
        else:
            self._unsynced.update(attempt.touched)
            self._sync_files({}, attempt.directories)

    def _behind(self) -> list[str]:
        """The segments that have been written to and not synced where they are."""
        return [path for path in self._unsynced if self.fs.exists(path)]

    @property
    def has_unsynced(self) -> bool:
        """Whether something was written that was not synced yet."""
        return bool(self._unsynced) or self._meta.has_unsynced

    def sync_pending(self) -> None:
        """Sync everything written since the last time. Raises StoreFailedError."""
        try:
            self._sync_segments()
            self._meta.sync()
        except OSError as error:
            what = "the metadata journal"
            raise StoreFailedError(f"syncing {what}: {error.strerror or error}") from error

    def _sync_segments(self) -> None:
        pending, self._unsynced = self._unsynced, {}
        self._sync_files(pending, {})

    def _sync_files(self, paths: dict[str, None], directories: dict[str, None]) -> None:
        failed = self.syncing.sync(list(paths), list(directories))
        if failed is not None:
            path, error = failed
            raise StoreFailedError(f"syncing {path}: {error.strerror or error}") from error

    def _retire(self, source: str, target: str, changed: dict[str, None]) -> None:
        """Take the directory of a deleted stream away; those in ``changed`` are to be synced then."""
        self.handles.drop_under(source)
        self._dead = deque(path for path in self._dead if not path.startswith(source + "/"))
        for path in self._segments.known_below(source):
            self.forget(path)
        if not self.fs.kind(source):
            return  # somebody was quicker
        if not self.fs.exists(target.rpartition("/")[0]):
            self.fs.mkdir(target.rpartition("/")[0])  # somebody has tidied up
        self.fs.rename(source, target)
        changed[target.rpartition("/")[0]] = None
        changed[source.rpartition("/")[0]] = None

    def forget(self, path: str) -> None:
        self._segments.forget(path)
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


def _by_path(group: list[Work]) -> dict[str, list[SegmentWrite]]:
    writes: dict[str, list[SegmentWrite]] = {}
    for work in group:
        for write in work.writes:
            before = writes.get(write.path)
            if before is None:
                writes[write.path] = [write]
            else:
                before.append(write)
    return writes
