"""Giving back the space of removed messages in segments that some few messages keep alive.

The live records of a sealed segment are copied as they are into a new file, in slices between batches,
on the commit thread, and so is its footer made. The new file, complete with it, is synced and renamed to
the segment's next generation; only then does the owner switch over, and only then is the old file
removed. Whenever the power goes, one of the two is whole.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import TYPE_CHECKING, Final

from ....clock import Clock
from ....errors import StoreFailedError, StoreReadError
from ..commit.commit import Chore
from ..commit.writer import Writer
from ..format.record import encode_removals, encode_skip, try_decode
from ..format.segment import HEADER_BYTES, Header, encode_header, footer_steps
from ..index.index import Segment
from ..index.spans import segment_path
from ..io.files import is_full, unreadable, write_all

if TYPE_CHECKING:
    from .file_log import FileLog

_SLICE_BYTES: Final = 1024 * 1024
_SLICE_READS: Final = 1000  # of records that do not lie together: some 3 ms
_AT_ONCE: Final = 1000  # messages whose footer is made in one step: a millisecond
_SMALLEST: Final = 64 * 1024  # a smaller file is not worth the trouble


def is_sparse(segment: Segment, segment_bytes: int) -> bool:
    """Whether three quarters of a sealed segment's messages are gone, but not all."""
    n = len(segment)
    worth = min(_SMALLEST, segment_bytes // 4)
    if segment.spoilt:
        return False  # what is damaged stays as it is, for whoever can make more of it
    return segment.sealed and 4 * segment.dead >= 3 * n > segment.dead and segment.data_end >= worth


def kept_positions(segment: Segment, floor: int, doubtful: Iterable[int]) -> array[int]:
    """The positions that a copy of the segment keeps: from ``floor`` on what is live, or may be again."""
    segment.ensure()
    start, stop = segment.lower(floor), len(segment)
    span, selectors = range(start, stop), segment.alive_slice(start, stop)
    if selectors is None:
        return array("I", span)
    for sequence in doubtful:
        position = segment.lower(sequence)
        if start <= position < stop and segment.sequence(position) == sequence:
            selectors[position - start] = 1
    return array("I", compress(span, selectors))


def _compacted_header(name: str, segment: Segment, created_ns: int) -> Header:
    """What the copy of a stream's segment begins with."""
    place = segment.salt, segment.serial, segment.base, created_ns, segment.jump
    return Header(name, *place, compacted=True, tells=segment.tells)


def _picked(column: array[int], positions: array[int]) -> array[int]:
    return array(column.typecode, map(column.__getitem__, positions))


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
        # Of a sealed segment none of these changes: subjects that are numbered anew get a new array.
        self.rel = positions if segment.rel is None else _picked(segment.rel, positions)
        self._source = segment.path
        self._old_offsets = segment.offsets
        self._old_sids = segment.sids
        self._sizes = _picked(segment.sizes, positions)
        self._sids = _picked(segment.sids, positions)
        self._stamps = _picked(segment.stamps, positions)
        self._removals = list(segment.removals)
        self.expiries = segment.expiries.only(self.rel) if segment.expiries else None
        self._bare = segment.bare
        self._final_seq = segment.final_seq
        self._names = names
        self._header = header
        self._copied = 0
        self._synced = HEADER_BYTES
        self._end = 0  # of what is written of the footer
        self._footer: Iterator[bytes] | None = None
        self._finish = finish

    def install(self, first: int) -> None:
        """Let the segment's index tell of the copy; messages below ``first`` are gone meanwhile."""
        segment, positions = self.segment, self.positions
        selectors = segment.alive_slice(0, len(segment))
        alive = bytearray(b"\1" * len(positions))
        if selectors is not None:
            alive = bytearray(map(selectors.__getitem__, positions))
        segment.head = bisect_left(positions, segment.lower(first))
        segment.dead = len(positions) - alive.count(1, segment.head)
        segment.alive = alive
        if segment.sids is self._old_sids:
            segment.sids = self._sids
        else:
            segment.sids = _picked(segment.sids, positions)
        segment.sizes, segment.stamps = self._sizes, self._stamps
        segment.offsets, segment.rel = self.offsets, self.rel
        segment.counts, segment.counted, segment.weight = Counter(), 0, 0
        segment.hollow = 0
        segment.version += 1
        segment.expiries = self.expiries
        segment.data_end, segment.ending = self.data_end, None

    def chore(self, writer: Writer) -> bool:
        """One slice of the work; whether there is more."""
        temporary = self.target + ".tmp"
        try:
            if not self.cancelled and writer.fs.exists(self._source):
                if self._copied < len(self.positions):
                    self._copy(writer, temporary)
                    return True
                if self._write_footer(writer, temporary):
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
        while (
            self._copied < len(self.positions)
            and end - begun < _SLICE_BYTES
            and len(pieces) < _SLICE_READS
        ):
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
        if end - self._synced >= _SLICE_BYTES:
            fs.fdatasync(target)
            self._synced = end
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

    def _write_footer(self, writer: Writer, temporary: str) -> bool:
        """One step of what stands behind the records; whether there is more."""
        if self._footer is None:
            self._footer = self._ending()
        is_small = len(self.positions) <= _AT_ONCE
        piece = b"".join(self._footer) if is_small else next(self._footer, None)
        if piece:
            target = writer.handles.get(temporary)
            write_all(writer.fs, target, piece, self._end)
            writer.fs.fdatasync(target)
            self._end += len(piece)
        return not is_small and piece is not None

    def _ending(self) -> Iterator[bytes]:
        """What removals the file tells of, and its footer: in pieces, some of them empty."""
        salt = self._header.salt
        statements = [encode_skip(self._final_seq, salt)]
        if self._removals:
            statements += encode_removals(self._final_seq, self._removals, salt)
        said = b"".join(statements)
        self._end = self.data_end
        self.data_end += len(said)
        yield said
        yield from footer_steps(
            self.data_end,
            self._final_seq,
            (self.offsets, self._sizes, self._sids, self._stamps, self.rel),
            self._names,
            self._removals,
            self.expiries,
            bare=self._bare,
        )

    def _complete(self, writer: Writer, temporary: str) -> None:
        writer.forget(temporary)
        writer.fs.rename(temporary, self.target)
        writer.fs.fsync_dir(self.target.rpartition("/")[0])

    def _drop(self, writer: Writer, temporary: str) -> None:
        writer.forget(temporary)
        if writer.fs.exists(temporary):
            writer.fs.unlink(temporary)


def compaction_of(
    log: FileLog, segment: Segment, created_ns: int, finish: Callable[[Compaction], None]
) -> Compaction | None:
    """What it takes to compact a segment of a log; None if there is no more reason to.

    Messages whose removal is not durable yet are kept: it may be taken back. Raises StoreReadError.
    """
    if segment not in log.segments[:-1] or not segment.live:
        return None
    if not log.segments[log.segments.index(segment) + 1].durable:
        return None  # if that one is taken back, this one will be appended to again
    removals = log.removals
    positions = kept_positions(segment, removals.durable_first, set(removals.undurable()))
    segment.generation += 1
    target = segment_path(log.directory, segment.serial, segment.generation)
    header = _compacted_header(log.name, segment, created_ns)
    return Compaction(log, segment, positions, log.table.names, header, target, finish)


class Compactor:
    """Compacts one segment after the other, as they become sparse. Belongs to the owner."""

    def __init__(
        self, submit: Callable[[Chore], None], notify: Callable[[], None], clock: Clock
    ) -> None:
        self._submit = submit
        self._clock = clock
        self._notify = notify
        self._waiting: dict[Segment, FileLog] = {}
        self._running: Compaction | None = None
        self._finished: deque[Compaction] = deque()
        self._refused: set[Segment] = set()  # no room, or unreadable: not tried before a restart

    def note(self, log: FileLog, segment: Segment) -> None:
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
                compaction = compaction_of(log, segment, self._clock.now_ns(), self._done)
            except StoreReadError:
                continue  # whoever removes the next message of it notes it again
            if compaction is not None:
                self._running = compaction
                self._submit(compaction.chore)

    def _done(self, compaction: Compaction) -> None:
        """Called on the commit thread."""
        self._finished.append(compaction)
        self._notify()
