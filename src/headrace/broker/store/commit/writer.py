"""Putting batches on disk: the order of writes and syncs, and undoing what did not fit.

The order within a batch is what recovery relies on: directories and segment files first, synced; then
the metadata, which may speak of them, synced; then the removal of deleted streams. So whatever moment
the power goes, metadata never speaks of messages that are not there.

A batch that only appends is synced by the commit log instead, messages and metadata at once: see
``commit_log.py``. That leaves nothing out, as all that an opening finds is on disk when it ends.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ....errors import StoreFailedError
from ..format.batch import Share
from ..format.entries import MetaChange, SpareWrite
from ..io.files import FileSystem, Handles, explain, is_full, write_all
from ..io.syncing import Syncing
from ..meta.journal_writer import JournalWriter
from .commit_log import CommitLog
from .durations import Durations
from .segment_files import Attempt, SegmentFiles, SegmentWrite


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
        self.log: CommitLog | None = None
        self._submit: Callable[[Callable[[Writer], bool | None]], None] | None = None
        self._unsynced: dict[str, None] = {}
        self._dead: deque[str] = deque()

    def attach(
        self, log: CommitLog, submit: Callable[[Callable[[Writer], bool | None]], None]
    ) -> None:
        """Use a commit log; ``submit`` takes what is to be done for it between batches."""
        self.log, self._submit = log, submit

    def commit(self, group: list[Work]) -> None:
        """Carry out a group as one. Raises StoreFullError with nothing left of it, or StoreFailedError."""
        attempt = Attempt()
        doing = "writing"
        try:
            for work in group:
                for directory in work.directories:
                    doing = f"creating {directory}"
                    self._segments.make_directory(directory, attempt)
            shares: list[Share] = []
            files = _by_path(group)
            is_for_log = self._is_for_log(group, len(files))
            for path, writes in files.items():
                doing = f"writing {path}"
                data = self._segments.write(path, writes, attempt)
                if is_for_log:
                    shares.append(Share(path, writes[0].salt, writes[0].offset, b"", data))
            metas = [work.meta for work in group if work.meta is not None]
            doing = "writing to the commit log"
            logged = is_for_log and self._log(group, shares, metas)
            if not logged:
                doing = "writing the metadata journal"
                self._sync_directly(group, metas, attempt)
        except OSError as error:
            if is_full(error):
                self._segments.take_back(attempt)
            raise explain(error, doing) from error
        self._finish(group, logged)
        log = self.log
        if log is not None and log.wants_tidying and self._submit is not None:
            log.wants_tidying = False
            self._submit(lambda _: log.tidy())

    def _is_for_log(self, group: list[Work], files: int) -> bool:
        """Whether the commit log takes a group, if it is not too much: only bytes appended to files."""
        if self.log is None:
            return False
        has_entries = False
        for work in group:
            if work.directories or work.retired:
                return False
            for write in work.writes:
                if write.header is not None or write.truncate:
                    return False
            has_entries = has_entries or bool(work.meta is not None and work.meta.entries)
        return files + has_entries >= self.log.shape.files_min

    def _is_log_ready(self, log: CommitLog) -> bool:
        """Whether the log is there; if it is due, that is begun."""
        if not log.is_ready and self._submit is not None and log.is_due():
            self._submit(lambda _: log.make())
        return log.is_ready

    def _log(self, group: list[Work], shares: list[Share], metas: list[MetaChange]) -> bool:
        """Sync a group by the commit log, and then write its metadata; False if the log cannot take it.

        Not before: a journal that has come to the disk by itself must not speak of what has not.
        """
        log = self.log
        assert log is not None
        has_entries = any(meta.entries for meta in metas)
        nbytes = sum([len(share.data) for share in shares])
        if not log.fits(nbytes, len(shares) + has_entries) or not self._is_log_ready(log):
            return False
        self._check_in_place([share.path for share in shares])
        marks = {path: mark for work in group for path, mark in work.marks}
        root = len(log.root) + 1
        shares = [
            Share(path[root:], salt, offset, marks.get(_watermark_of(path), b""), data)
            for path, salt, offset, _, data in shares
        ]
        prepared = journal = None
        if has_entries:
            prepared = self._meta.prepare(metas)
            if prepared is None:
                return False
            self._meta.check_in_place()
            path, salt, offset, data, mark, _ = prepared
            journal = Share(path[root:], salt, offset, mark, data)
        elif any(meta.image is not None for meta in metas):
            return False
        began_ns = self._monotonic_ns()
        if not log.write(shares, journal):
            return False
        self.syncs.add(self._monotonic_ns() - began_ns)
        if prepared is not None:
            try:
                self._meta.put(prepared)
            except OSError as error:
                what = f"writing the metadata journal: {error.strerror or error}"
                raise StoreFailedError(what) from error
        return True

    def _sync_directly(self, group: list[Work], metas: list[MetaChange], attempt: Attempt) -> None:
        """Sync what a group has written, file by file, and then write and sync its metadata."""
        self._sync_all(attempt)
        self._check_in_place(attempt.touched)
        if self.log is not None:
            self.log.synced(attempt.touched)
            for work in group:
                for directory, _ in work.retired:
                    self.log.settle(directory)
        if self._unsynced and any(meta.image is not None for meta in metas):
            self._sync_segments()  # a journal that is written anew is on disk at once
        self._meta.write(metas, self._sync)

    def _check_in_place(self, paths: Iterable[str]) -> None:
        """Raise StoreFailedError if somebody has taken the files away that were written.

        Writing to a removed file works, and so does syncing it. What was written is gone all the same.
        """
        if not self._in_place():
            raise StoreFailedError("the store's directory was removed or replaced while in use")
        for path in paths:
            if not self.fs.is_at(self.handles.get(path), path):
                raise StoreFailedError(f"{path} was removed while in use")

    def _finish(self, group: list[Work], logged: bool) -> None:
        """After everything that can be undone: watermarks and deletions. The log has its own watermarks."""
        doing = ""
        try:
            for work in group:
                for spare in work.meta.spares if work.meta is not None else ():
                    doing = f"writing {spare.path}"
                    self._write_spare(spare)
            for path, offset, data in [copy for work in group for copy in work.copies]:
                doing = f"writing {path}"
                self._write_beside(path, data, offset)
            marks = {} if logged else {path: mark for work in group for path, mark in work.marks}
            for path, mark in marks.items():
                doing = f"writing {path}"
                self._write_beside(path, mark, 0)
            if self.log is not None:
                self.log.marked(marks)
                doing = "saying that there is no commit log"
                self.log.say_that_it_is_gone()
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
        behind = self.log.behind() if self.log is not None else ()
        return [path for path in (*self._unsynced, *behind) if self.fs.exists(path)]

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

    def settle(self, directory: str) -> None:
        """What was written below a directory is synced where it is, and the commit log knows that it is.

        Raises StoreFailedError, OSError.
        """
        if self.log is not None:
            self.log.settle(directory)

    def put_mark(self, path: str, mark: bytes) -> None:
        """Write a watermark whose batch was synced before. Raises OSError if that fails."""
        self._write_beside(path, mark, 0)

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

    def remove_log(self) -> None:
        """Sync all that is behind, and take the commit log away. Raises StoreFailedError, OSError."""
        if self.log is not None:
            self.log.remove()

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
        self.syncing.close()
        self.handles.close()


def _watermark_of(path: str) -> str:
    return path.rpartition("/")[0] + "/watermark"


def _by_path(group: list[Work]) -> dict[str, list[SegmentWrite]]:
    writes: dict[str, list[SegmentWrite]] = {}
    for work in group:
        for write in work.writes:
            writes.setdefault(write.path, []).append(write)
    return writes
