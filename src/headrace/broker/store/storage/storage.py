"""The top of the store: a directory of streams, a metadata journal and one commit thread.

A ``Flight`` is what is on its way to the disk, and what it takes to undo it.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from ....clock import Clock, SystemClock
from ....errors import StoreError, StoreFailedError, StoreFullError
from ....limits import PAYLOAD_CACHE_BYTES_DEFAULT, SEGMENT_BYTES
from ..commit.commit import Batch, Committer
from ..commit.writer import Writer
from ..io.files import DirectoryLock, FileSystem, LocalFiles, explain, write_all
from ..io.findings import Finding, Quarantine
from ..log.appends import ExpiryOf
from ..log.file_log import FileLog, new_log
from ..log.idle import Idle
from ..log.log import StreamLog
from ..log.memory_log import MemoryLog
from ..log.reader import SegmentCache
from ..log.removals import Part
from ..meta.journal import JournalWriter, open_journal
from ..meta.meta import Meta
from ..meta.spare import UNSETTLED, Spares, mend, read_spare
from ..recovery import open_log
from .layout import HANDLES, Layout, Opening, Salts, each_ones_handles, opening
from .scrub import SealedFile, read_everything, sealed_files

_NAME_BYTES_MAX: Final = 1000
_SEAL_AT_CLOSE: Final = 4096  # a tail with fewer messages is read faster than its footer is written
_FINDINGS_MAX: Final = 10_000
_LOOK_NS: Final = 1_000_000_000
_ROOM_BYTES: Final = 256 * 1024


class Deleted(NamedTuple):
    """A stream that is deleted: where it lies, None in memory, and whether it was noted as being nowhere."""

    name: str
    directory: str | None
    log: FileLog | MemoryLog | None
    was_unsettled: bool


class Staged(msgspec.Struct, eq=False):
    """What the next flush will take: streams that changed, were made or deleted, and what moves away."""

    dirty: dict[FileLog | MemoryLog, None] = msgspec.field(default_factory=dict)
    created: list[FileLog | MemoryLog] = msgspec.field(default_factory=list)
    deleted: list[Deleted] = msgspec.field(default_factory=list)
    retired: list[tuple[str, str]] = msgspec.field(default_factory=list)
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


def _ignore_outcome(_: Exception | None) -> None:
    """Nobody waits for it."""


class Room:
    """Whether the disk has room for messages. Looked for once a second from when one was refused, so that
    this is known though nobody publishes any more, as when a broker that is not well gets no work.

    Attributes:
        missing: why there is none; None while there is some.
    """

    def __init__(self, fs: FileSystem, root: str, clock: Clock) -> None:
        self._fs = fs
        self._path = f"{root}/room.tmp"
        self._clock = clock
        self._looked_ns = 0
        self.missing: StoreFullError | None = None

    def lacks(self, error: StoreFullError) -> None:
        """Messages were refused."""
        self.missing = error
        self._looked_ns = self._clock.monotonic_ns()

    def is_due(self) -> bool:
        """Whether it is time to look."""
        if self.missing is None:
            return False
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._looked_ns + _LOOK_NS:
            return False
        self._looked_ns = now_ns
        return True

    def look(self, _writer: Writer) -> None:
        """A chore: see whether a file can be made."""
        fs, path = self._fs, self._path
        try:
            if fs.exists(path):
                fs.unlink(path)
            handle = fs.open(path, create=True)
            try:
                if not fs.allocate(handle, 0, _ROOM_BYTES):
                    write_all(fs, handle, bytes(_ROOM_BYTES), 0)
            finally:
                fs.close(handle)
                fs.unlink(path)
        except OSError:
            return  # there is none yet
        self.missing = None


class FileStorage:
    """A store of streams in a directory; see ``Storage`` in ``core/ports/storage.py``.

    Everything is called on one thread, the owner's. When the commit thread has finished something it
    calls ``notify`` (on its own thread); the owner then calls ``complete``. With ``threaded=False``
    there is no commit thread: ``flush`` commits and calls ``done`` before it returns.

    ``handles`` is how many files it keeps open at most, to read and to write.

    A flush whose ``done`` is given StoreFullError left nothing behind: the messages appended for it
    are gone again and the messages removed for it are back, and so it is for everything staged since.
    Changes of ``meta`` are the exception: they stay and go with the next flush. Once there is room,
    the next flush works. StoreFailedError means that a write or a sync failed: the store has become
    read-only (``failed``), and what was in flight may or may not be on disk.

    Raises StoreLockedError, StoreFormatError, StoreFailedError, StoreFullError, ConfigurationError.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        fs: FileSystem | None = None,
        sync: str = "always",
        segment_bytes: int = SEGMENT_BYTES,
        cache_bytes: int = PAYLOAD_CACHE_BYTES_DEFAULT,
        notify: Callable[[], None] | None = None,
        threaded: bool = True,
        salts: Salts | None = None,
        handles: int = HANDLES,
    ) -> None:
        clock, notify = clock or SystemClock(), notify or ignore
        asked = opening(clock, sync, segment_bytes, cache_bytes, notify, threaded)
        self.sync: Final = sync
        self.directory: Final = os.path.abspath(os.fspath(directory))  # noqa: PTH100
        self.report: list[Finding] = []
        self._fs = fs = fs if fs is not None else LocalFiles()
        self._handles = each_ones_handles(handles)
        self._layout = Layout(fs, self.directory)
        self._salts: Salts = salts if salts is not None else random.SystemRandom()
        try:
            self._layout.prepare(self._found)
            self._lock = DirectoryLock(fs, self.directory)
        except OSError as error:
            raise explain(error, f"opening the store in {self.directory}") from error
        try:
            self._open(asked)
        except OSError as error:
            self._lock.release()
            raise explain(error, f"opening the store in {self.directory}") from error
        except BaseException:
            self._lock.release()
            raise

    def _open(self, asked: Opening) -> None:
        clock, notify, threaded = asked.clock, asked.notify, asked.threaded
        fs, meta_directory, anchor = self._fs, self._layout.meta, self._lock.handle
        self._quarantine = Quarantine(fs, self._layout.quarantine)
        opened = open_journal(
            fs, meta_directory, self.directory, self._quarantine, self._found, self._salt
        )
        found = self._layout.streams(self._found)
        shared = read_spare(fs, meta_directory, "")
        if shared is not None:
            found.spares[""] = shared
        in_use = bool(found.streams or found.nameless or found.barred or found.spares)
        mend(opened, found.spares, self._found, self._is_placed, in_use=in_use)
        self._journal = JournalWriter(fs, meta_directory, opened, self._salt)
        place, ns = self._lock.in_place, clock.monotonic_ns
        self._writer = Writer(
            fs, asked.sync, self._journal, place, self._handles, ns, at_once=threaded, anchor=anchor
        )
        self._spares = Spares(
            found.spares, self._directory_of, self._writer.stale_spares, self._salt
        )
        self.meta = Meta(opened, self._spares, self._check)
        every_ns = asked.interval_ns
        self._committer = Committer(
            self._writer, clock=clock, threaded=threaded, notify=notify, interval_ns=every_ns
        )
        self._cache = SegmentCache(
            fs,
            self.directory,
            clock=clock,
            segment_bytes=asked.segment_bytes,
            cache_bytes=asked.cache_bytes,
            handles=self._handles,
            salt=self._salt,
            report=self._found,
            mark_dirty=self._mark_dirty,
            restage=self._restage,
            chore=self._committer.submit,
            notify=notify,
        )
        self._idle = Idle(self._cache, clock)
        self._room = Room(fs, self.directory, clock)
        self._threaded = threaded
        self._closed = False
        self._epoch = 0
        self._poison: StoreError | None = None
        self._logs: dict[str, FileLog | MemoryLog] = {}
        self._unopened = found.streams
        self._places = found
        self._staged = Staged()
        self._inflight: deque[Flight] = deque()
        self._pending_bytes = 0
        self._completing = False
        self._empty_trash = self._layout.empty_trash(self._found)
        if self._layout.has_trash():
            self._committer.submit(self._empty_trash)
        for name in self.meta.unsettled():
            self._look_for(name)

    # -- the port

    @property
    def failed(self) -> Exception | None:
        """The error after which nothing can be changed any more, or None."""
        return self._committer.failed

    @property
    def full(self) -> Exception | None:
        """Why there is no room for messages, from when one was refused until there is some again; or None."""
        return self._room.missing

    def timing(self) -> dict[str, dict[str, object]]:
        """How long commits took, and the syncs in them: see ``Durations.describe``."""
        both = {"commits": self._committer.durations, "syncs": self._writer.syncs}
        return {name: durations.describe() for name, durations in both.items()}

    @property
    def pending_bytes(self) -> int:
        """How many bytes of messages are staged or being committed, and not durable yet."""
        return self._pending_bytes + sum([log.staged_bytes for log in self._staged.dirty])

    @property
    def pending_flushes(self) -> int:
        """How many flushes were handed over and are not yet completed."""
        return len(self._inflight)

    def streams(self) -> list[str]:
        """The names of all streams, sorted."""
        return sorted({*self._logs, *self._unopened})

    def create_stream(self, name: str, *, memory: bool = False) -> FileLog | MemoryLog:
        """Make an empty stream, durable with the next flush.

        Raises StoreError if it exists or the name is too long. A ``memory`` stream takes part in
        flushes but leaves nothing on disk. If one of this name was deleted since the last flush, what
        is staged so far is committed first, as a flush of its own that nobody hears of.
        """
        self._check()
        self._places.identify(name, self._layout.stream(name))
        if name in self._logs or name in self._unopened:
            raise StoreError(f"stream {name!r} exists already")
        if name in self._places.barred:
            raise StoreError(f"stream {name!r}: {self._places.barred[name]}")
        if not 0 < len(name.encode()) <= _NAME_BYTES_MAX:
            raise StoreError(
                f"a stream's name has 1 to {_NAME_BYTES_MAX} bytes; this one {len(name.encode())}"
            )
        log: FileLog | MemoryLog
        if memory:
            log = MemoryLog(name, self._mark_dirty)
        else:
            directory = self._layout.stream(name)
            if any(source == directory for source, _ in self._staged.retired):
                self._submit(_ignore_outcome)  # the old one must be gone before the new one is made
            self.meta.unsettle(name)
            log = new_log(name, directory, self._cache)
        self._logs[name] = log
        self._staged.created.append(log)
        self._staged.touched = True
        return log

    def open_stream(self, name: str, expiry_of: ExpiryOf | None = None) -> FileLog | MemoryLog:
        """The stream of this name, read from disk the first time. Raises StoreError if there is none.

        ``expiry_of(headers, timestamp_ns)`` tells when a message that expires by itself does so.
        """
        log = self._logs.get(name)
        if log is not None:
            return log
        self._places.identify(name, self._layout.stream(name))
        directory = self._unopened.get(name)
        if directory is None:
            raise StoreError(f"no stream {name!r} in the store")
        try:
            if self.meta.is_unsettled(name) and not self._fs.exists(directory):
                log = new_log(name, directory, self._cache)
            else:
                log = open_log(name, directory, self._cache, self._quarantine, expiry_of)
        except OSError as error:
            raise explain(error, f"opening stream {name!r}") from error
        self._unopened.pop(name, None)
        self._logs[name] = log
        if not log.clean:
            self._staged.dirty[log] = None
        return log

    def holds(self, name: str, store: object) -> bool:
        """Whether this is what it keeps under the name: not after a deletion or a failed creation."""
        return self._logs.get(name) is store

    def barred(self) -> dict[str, str]:
        """Names of streams whose place is taken by something that is none, and what that is."""
        return dict(self._places.barred)

    def location(self, name: str) -> str:
        """Where a stream lies, or would lie."""
        return self._layout.stream(name)

    def is_unfinished(self, name: str) -> bool:
        """Whether the first flush of this stream was cut off: nobody was ever told that it exists."""
        directory = self._unopened.get(name)
        return directory is not None and self._layout.is_unfinished(directory)

    def note(self, what: str, stream: str = "") -> None:
        """Add to ``report`` what whoever uses the metadata found wrong with it."""
        where = self._layout.stream(stream) if stream else self._layout.meta
        self._found(Finding(where, 0, what, stream))

    def delete_stream(self, name: str) -> None:
        """Drop a stream with all its messages, durably with the next flush.

        What only stands in its place is put aside untouched. Raises StoreError if there is none.
        """
        self._check()
        self._places.identify(name, self._layout.stream(name))
        if name in self._places.barred:
            self._put_aside(name)
            return
        log = self._logs.pop(name, None)
        directory = self._unopened.pop(name, None)
        if log is None and directory is None:
            raise StoreError(f"no stream {name!r} in the store")
        was_unsettled = self.meta.settle(name)
        self._spares.drop(name)
        staged = self._staged
        staged.touched = True
        if log is not None:
            staged.dirty.pop(log, None)
            log.discard()
        if isinstance(log, FileLog):
            directory = log.directory
        if log is not None and log in staged.created:
            staged.created.remove(log)
            return
        staged.deleted.append(Deleted(name, directory, log, was_unsettled))
        is_nowhere = was_unsettled and isinstance(log, FileLog) and not log.is_placed
        if directory is not None and not is_nowhere:
            staged.retired.append((directory, self._layout.trash()))

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        """Commit everything staged so far; ``done`` is called in the order of the flushes.

        It is called from ``complete``; or before ``flush`` returns, without a commit thread, when there is
        nothing to wait for, and for a small flush on a quick disk.
        """
        self._submit(done)
        if not self._threaded or self._inflight[0].batch.finished:
            self.complete()

    def complete(self) -> None:
        """Take note of what the commit thread has finished and call what waits for it."""
        if self._completing:
            return  # called from a ``done``: the loop below goes on with what there is
        self._completing = True
        faults: list[Exception] = []
        try:
            while self._next_finished():
                self._complete_one(self._inflight.popleft(), faults)
            self._cache.recent.shrink()
            self._idle.look(self._logs)
            if self._room.is_due() and self.failed is None:
                self._committer.submit(self._room.look)
            if self.failed is None:
                self._cache.compactor.pump()
        finally:
            self._completing = False
        if faults:
            raise faults[0]

    def _complete_one(self, flight: Flight, faults: list[Exception]) -> None:
        """Take note of one flush and call who waits for it.

        What goes wrong is told when everybody has been called: what others were promised does not fail by it.
        """
        self._pending_bytes -= flight.batch.nbytes
        error = flight.refused or flight.batch.error
        try:
            if error is None:
                self._succeed(flight)
            elif flight.refused is None:
                self._fail(flight, error)
        except Exception as fault:
            faults.append(fault)
        try:
            flight.batch.done(error)
        except Exception as fault:
            faults.append(fault)

    def _next_finished(self) -> bool:
        """Whether a flush is finished; on a full disk one of our own is begun if that can free some room."""
        busy = self._inflight or self._staged.touched or self.failed
        if not busy and self._cache.is_full and self._staged.dirty:
            self._submit(_ignore_outcome, own=True)
        return bool(self._inflight) and self._inflight[0].batch.finished

    def verify(self, step: int = 1000) -> Iterator[int]:
        """Read every message of every stream on disk, ``step`` at a time.

        Yields how many were read after each step. What is damaged is skipped and listed in ``report``.
        """
        return read_everything(map(self.open_stream, self.streams()), step)

    def sealed_files(self) -> list[SealedFile]:
        """The files of streams in use that are no longer written, for a scrub; see ``scrub.py``."""
        return sealed_files(log for log in self._logs.values() if isinstance(log, FileLog))

    def close(self) -> None:
        """Flush, write what makes the next start quick, and release the directory.

        ``done`` callbacks still outstanding are called. Without effect the second time.
        """
        if self._closed:
            return
        self._submit(_ignore_outcome)
        self._cache.compactor.stop()
        self._committer.stop()
        self.complete()
        self._closed = True
        if self.failed is None:
            self._seal_tails()
        self._writer.close()
        self._journal.close()
        self._cache.handles.close()
        self._lock.release()

    # -- flushing inside

    def _submit(self, done: Callable[[Exception | None], None], *, own: bool = False) -> None:
        batch = Batch(self._epoch, done)
        refused, self._poison = self._poison, None
        if refused is None:
            flight = Flight(batch, self._staged, None, own=own)
            self._staged = Staged()
            self._fill(flight)
        else:
            # What was staged before the batch failed is gone already, and so is what came since.
            self._take_back_staged()
            flight = Flight(batch, Staged(), refused, own=own)
        self._inflight.append(flight)
        if batch.work:
            self._committer.submit(batch)
        else:
            batch.finished = True

    def _fill(self, flight: Flight) -> None:
        batch, staged = flight.batch, flight.staged
        work = batch.work
        work.retired = staged.retired
        for log in staged.dirty:
            part = log.stage(work)
            flight.parts.append((log, part))
            if part.made and self.failed is None:
                self.meta.settle(log.name)
        work.meta = self.meta.take()
        batch.nbytes = sum([write.nbytes for write in work.writes])
        self._pending_bytes += batch.nbytes

    def _succeed(self, flight: Flight) -> None:
        if self._room.missing and any(write.messages for write in flight.batch.work.writes):
            self._room.missing = None
        change = flight.batch.work.meta
        if change is not None:
            self.meta.complete(change)
        for log, part in flight.parts:
            log.complete(part)
        if flight.batch.work.retired:
            self._committer.submit(self._empty_trash)

    def _fail(self, flight: Flight, error: StoreError) -> None:
        """Take back the flight and all that was staged after it, flushed or not."""
        self._epoch += 1
        if self._staged.touched:
            self._poison = error
        self._take_back_staged()
        flights = [flight, *self._inflight]
        for later in reversed(flights):
            later.refused = error
            self._undo_streams(later.staged)
        logs = {log: None for later in flights for log, _ in later.parts}
        for log in logs:
            if self._logs.get(log.name) is log:
                log.fail()
        self.meta.fail()
        for name in [log.name for later in flights for log, part in later.parts if part.made]:
            if self.failed is None and (name in self._logs or name in self._unopened):
                self.meta.unsettle(name)
        if isinstance(error, StoreFullError) and not flight.own:
            self._room.lacks(error)
            self._cache.is_full = True
            for log in self._logs.values():
                log.give_back()

    def _take_back_staged(self) -> None:
        staged, self._staged = self._staged, Staged()
        self._undo_streams(staged)
        for log in staged.dirty:
            if self._logs.get(log.name) is log:
                log.fail()

    def _undo_streams(self, staged: Staged) -> None:
        """Streams created are no more, streams deleted are back."""
        for log in staged.created:
            self._logs.pop(log.name, None)  # or it was deleted since, and is listed as not opened
            self._unopened.pop(log.name, None)
            log.discard()
            if self.failed is None:
                self.meta.settle(log.name)
        for name, directory, deleted, was_unsettled in staged.deleted:
            if directory is not None:
                self._unopened[name] = directory
            elif deleted is not None:
                self._logs[name] = deleted
                deleted.fail()
            if was_unsettled and self.failed is None:
                self.meta.unsettle(name)

    # -- small things inside

    def _directory_of(self, name: str) -> str | None:
        """The directory of a stream that has one; for no name, that of what is kept of those without one."""
        if not name:
            return self._layout.meta
        if self.meta.is_unsettled(name):
            return None
        log = self._logs.get(name)
        return log.directory if isinstance(log, FileLog) else self._unopened.get(name)

    def _is_placed(self, name: str) -> bool:
        """Whether there is something in the place of this stream's directory."""
        return bool(self._fs.kind(self._layout.stream(name)))

    def _look_for(self, name: str) -> None:
        """See what there is of a stream that was noted as having no directory."""
        directory = self._layout.stream(name)
        self._places.identify(name, directory)
        if name in self._unopened:
            self.meta.settle(name)
            return
        if name not in self._places.barred:
            self._unopened[name] = directory
        self.meta.keep_beside(UNSETTLED + name, name)

    def _put_aside(self, name: str) -> None:
        self.meta.settle(name)
        self._spares.drop(name)
        try:
            self._quarantine.take(self._layout.stream(name), self.directory)
        except OSError as error:
            raise explain(error, f"putting aside what is in the place of {name!r}") from error
        del self._places.barred[name]

    def _seal_tails(self) -> None:
        """Write the footers of long tails, which makes the next start quick; the commit thread has ended."""
        for log in self._logs.values():
            chore = log.closing_chore(_SEAL_AT_CLOSE) if isinstance(log, FileLog) else None
            if chore is not None:
                self._committer.run_chore(chore)

    def _salt(self) -> int:
        return self._salts.getrandbits(32)

    def _found(self, finding: Finding) -> None:
        if len(self.report) < _FINDINGS_MAX:
            self.report.append(finding)

    def _check(self) -> None:
        """Raise StoreError if nothing may be changed any more."""
        failed = self._committer.failed
        if failed is not None:
            raise StoreFailedError(str(failed)) from failed
        if self._closed:
            raise StoreError("the store is closed")

    def _mark_dirty(self, log: StreamLog) -> None:
        self._check()
        if self._logs.get(log.name) is not log:
            raise StoreError(f"stream {log.name!r} was deleted")
        self._restage(log)
        self._staged.touched = True

    def _restage(self, log: StreamLog) -> None:
        known = self._logs.get(log.name)
        if known is not None and known is log:
            self._staged.dirty[known] = None
