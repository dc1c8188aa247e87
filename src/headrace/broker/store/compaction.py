"""Giving back the space of removed messages in segments that some few messages keep alive.

The live records of a sealed segment are copied as they are into a new file, in slices between batches,
on the commit thread. The new file, complete with its footer, is synced and renamed to the segment's
next generation; only then does the owner switch over, and only then is the old file removed. Whenever
the power goes, one of the two is whole.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...errors import StoreFailedError, StoreReadError
from .commit import Chore
from .files import is_full, unreadable, write_all
from .index import Segment
from .record import encode_removals, encode_skip, try_decode
from .segment import HEADER_BYTES, Header, encode_footer, encode_header
from .writer import Writer

if TYPE_CHECKING:
    from .filestore import FileLog

__all__ = ["Compaction", "Compactor", "compacted_header", "is_sparse"]

_SLICE_BYTES: Final = 1024 * 1024
_SMALLEST: Final = 64 * 1024  # a smaller file is not worth the trouble


def is_sparse(segment: Segment, segment_bytes: int) -> bool:
    """Whether three quarters of a sealed segment's messages are gone, but not all."""
    n = len(segment)
    worth = min(_SMALLEST, segment_bytes // 4)
    if segment.spoilt:
        return False  # what is damaged stays as it is, for whoever can make more of it
    return segment.sealed and 4 * segment.dead >= 3 * n > segment.dead and segment.data_end >= worth


def compacted_header(name: str, segment: Segment, created_ns: int) -> Header:
    """What the copy of a stream's segment begins with."""
    place = segment.salt, segment.serial, segment.base, created_ns, segment.jump
    return Header(name, *place, compacted=True, tells=segment.tells)


class Compaction:
    """One segment being copied. ``positions`` are those that are kept, ascending."""

    def __init__(
        self,
        log: FileLog,
        segment: Segment,
        positions: array[int],
        names: list[bytes],
        header: Header,
        target: str,
        finish: Callable[[Compaction], None],
    ) -> None:
        self.log = log
        self.segment = segment
        self.positions = positions
        self.target = target
        self.cancelled = False
        self.refused = False
        self.data_end = HEADER_BYTES
        self.offsets: array[int] = array("I")
        self.rel: array[int] = array("I", [segment.sequence(p) - segment.base for p in positions])
        self._source = segment.path
        self._old_offsets = segment.offsets
        self._sizes = array("I", map(segment.sizes.__getitem__, positions))
        self._sids = array("I", map(segment.sids.__getitem__, positions))
        self._stamps = array("q", map(segment.stamps.__getitem__, positions))
        self._removals = list(segment.removals)
        self.expiries = segment.expiries.only(self.rel) if segment.expiries else None
        self._bare = segment.bare
        self._final_seq = segment.final_seq
        self._names = names
        self._header = header
        self._copied = 0
        self._finish = finish

    def install(self, first: int) -> None:
        """Let the segment's index tell of the copy; messages below ``first`` are gone meanwhile."""
        segment, positions = self.segment, self.positions
        live = [segment.is_live(at) and segment.sequence(at) >= first for at in positions]
        segment.head = bisect_left(positions, segment.lower(first))
        segment.sizes = array("I", map(segment.sizes.__getitem__, positions))
        segment.sids = array("I", map(segment.sids.__getitem__, positions))
        segment.stamps = array("q", map(segment.stamps.__getitem__, positions))
        segment.alive = bytearray(map(segment.is_live, positions))
        segment.offsets, segment.rel = self.offsets, self.rel
        segment.dead = live.count(False)
        segment.counts, segment.counted = {}, 0
        segment.version += 1
        segment.expiries = self.expiries
        segment.data_end = self.data_end

    def chore(self, writer: Writer) -> bool:
        """One slice of the work; whether there is more."""
        temporary = self.target + ".tmp"
        try:
            if not self.cancelled and writer.fs.exists(self._source):
                if self._copied < len(self.positions):
                    self._copy(writer, temporary)
                    return True
                self._complete(writer, temporary)
                self._finish(self)
                return False
        except StoreReadError:
            self.refused = True  # reading again may work; until then the segment stays as it is
        except OSError as error:
            if not is_full(error):
                raise StoreFailedError(
                    f"compacting {self._source}: {error.strerror or error}"
                ) from error
            self.refused = True
        self._drop(writer, temporary)
        self._finish(self)
        return False

    def _copy(self, writer: Writer, temporary: str) -> None:
        fs = writer.fs
        is_first = self._copied == 0
        pieces: list[bytes] = []
        begun, end = self.data_end, self.data_end
        while self._copied < len(self.positions) and end - begun < _SLICE_BYTES:
            first = self._copied
            start = self._old_offsets[self.positions[first]]
            stop = start
            while self._copied < len(self.positions) and end - begun < _SLICE_BYTES:
                if self._old_offsets[self.positions[self._copied]] != stop:
                    break
                size = self._sizes[self._copied]
                self.offsets.append(end)
                stop += size
                end += size
                self._copied += 1
            pieces.append(self._read(writer, first, start, stop))
        # Only now: opening the source may have closed every other handle, for want of handles.
        target = writer.handles.get(temporary, create=is_first)
        if is_first:
            write_all(fs, target, encode_header(self._header), 0)
        write_all(fs, target, b"".join(pieces), begun)
        fs.fdatasync(target)
        self.data_end = end

    def _read(self, writer: Writer, first: int, start: int, stop: int) -> bytes:
        """Records that lie together, the first of which is number ``first`` of those kept.

        Raises StoreReadError, also if one does not match its checksum: the only whole one may be the
        old file's, for whoever reads it at another time.
        """
        path, salt = self._source, self._header.salt
        try:
            data = writer.fs.pread(writer.handles.get(path), stop - start, start)
        except OSError as error:
            writer.handles.drop(path)
            raise unreadable(error, path) from error
        at = 0
        for size in self._sizes[first : self._copied]:
            if try_decode(data, at, at + size, salt) is None:
                raise StoreReadError(f"compacting {path}: byte {start + at} is damaged", path)
            at += size
        return data

    def _complete(self, writer: Writer, temporary: str) -> None:
        fs = writer.fs
        target = writer.handles.get(temporary)
        salt = self._header.salt
        statements = [encode_skip(self._final_seq, salt)]
        if self._removals:
            statements += encode_removals(self._final_seq, self._removals, salt)
        said = b"".join(statements)
        arrays = (self.offsets, self._sizes, self._sids, self._stamps, self.rel)
        data_end = self.data_end + len(said)
        footer = encode_footer(
            data_end,
            self._final_seq,
            arrays,
            self._names,
            self._removals,
            self.expiries,
            bare=self._bare,
        )
        write_all(fs, target, said + footer, self.data_end)
        self.data_end = data_end
        fs.fdatasync(target)
        writer.forget(temporary)
        fs.rename(temporary, self.target)
        fs.fsync_dir(self.target.rpartition("/")[0])

    def _drop(self, writer: Writer, temporary: str) -> None:
        writer.forget(temporary)
        if writer.fs.exists(temporary):
            writer.fs.unlink(temporary)


class Compactor:
    """Compacts one segment after the other, as they become sparse. Belongs to the owner."""

    def __init__(self, submit: Callable[[Chore], None], notify: Callable[[], None]) -> None:
        self._submit = submit
        self._notify = notify
        self._waiting: dict[Segment, FileLog] = {}
        self._running: Compaction | None = None
        self._finished: deque[Compaction] = deque()
        self._refused: set[Segment] = set()  # no room, or unreadable: not tried before a restart

    def note(self, log: FileLog, segment: Segment) -> None:
        """The segment has become sparse."""
        if segment not in self._refused:
            self._waiting[segment] = log

    def forget(self, segment: Segment) -> None:
        """The segment is dead, or its stream is."""
        self._waiting.pop(segment, None)
        self._refused.discard(segment)
        if self._running is not None and self._running.segment is segment:
            self._running.cancelled = True

    def stop(self) -> None:
        """Begin nothing more, and end what is running soon."""
        self._waiting.clear()
        if self._running is not None:
            self._running.cancelled = True

    def pump(self) -> None:
        """Switch over to what is finished, and begin the next."""
        while self._finished or (self._waiting and self._running is None):
            if self._finished:
                done = self._finished.popleft()
                self._running = None
                if done.refused:
                    self._refused.add(done.segment)
                elif not done.cancelled:
                    done.log.switch(done)
                continue
            segment, log = self._waiting.popitem()
            try:
                compaction = log.compaction(segment, self._done)
            except StoreReadError:
                continue  # whoever removes the next message of it notes it again
            if compaction is not None:
                self._running = compaction
                self._submit(compaction.chore)

    def _done(self, compaction: Compaction) -> None:
        """Called on the commit thread."""
        self._finished.append(compaction)
        self._notify()
