"""A stream on disk: a directory of segment files, of which only the last one grows.

Appending encodes into memory; ``stage`` turns what has gathered into writes for the commit thread.
Records stay in memory until they are durable and then as long as the cache has room, so whoever reads
at the end of a stream never touches the disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from ....errors import StoreError
from ..commit.commit import Chore
from ..commit.segment_files import SegmentWrite
from ..commit.writer import Work
from ..format.record import (
    encode_commit,
    encode_message,
    encode_open,
    encode_removals,
    encode_run,
    encode_skip,
    encode_watermark,
    flagged,
    records_bytes,
)
from ..format.removal_copy import copy_path
from ..format.segment import HEADER_BYTES, Header, encode_header
from ..index.index import Chunk, Segment, SubjectTable, pushes
from ..index.spans import (
    coalesce,
    emptied_range,
    note_removals,
    ranges_of_each,
    recorded_only_in,
    segment_path,
    subtract,
)
from . import appends
from .appends import SUBJECT_MAX, Staged
from .chores import hole_before, punch_chore, seal_chore, unlink_chore
from .compaction import Compaction, is_sparse
from .inventory import RemovalCopies
from .log import StreamLog
from .reader import RecordReader, SegmentCache
from .removals import Part

_CHUNK_BYTES: Final = 256 * 1024
_COMMIT_EVERY: Final = 4 * 1024  # bytes between COMMIT records
_RECORD_MAX: Final = 1 << 30
_ROLL_DEAD: Final = 64 * 1024  # a tail with so many bytes and no message is left for a fresh one


class FileLog(StreamLog):
    """One stream on disk; see ``StreamStore`` in ``core/ports/storage.py``."""

    append_expiring = appends.append_expiring
    append_together = appends.append_together
    reset_first = appends.reset_first
    skip_to = appends.skip_to

    def __init__(
        self,
        name: str,
        directory: str,
        cache: SegmentCache,
        segments: list[Segment],
        table: SubjectTable,
        *,
        last_seq: int,
        first: int,
        nbytes: int = 0,
        end: int = HEADER_BYTES,
        cut_tail: bool = False,
        unfit_tail: bool = False,
        jump: bool,
        missing: Sequence[tuple[int, int]] = (),
        unrecorded: Sequence[tuple[int, int]] = (),
        copies: RemovalCopies | None = None,
        last_serial: int,
        is_placed: bool = True,
    ) -> None:
        super().__init__(name, segments[-1], cache.mark_dirty)
        self.directory = directory
        self._mark_path = directory + "/watermark"
        self._cache = cache
        self.decode = RecordReader(self, cache).decode
        self.segments = segments
        self.bases = [segment.base for segment in segments]
        self.table = table
        self.last_seq = self.durable_seq = last_seq
        self.first = self.removals.floor = first
        self.messages = sum(segment.live for segment in segments)
        self.bytes = nbytes
        self.removals.died = [segment for segment in segments[:-1] if not segment.live]
        self._end = self._durable_end = self._write_from = end
        self._marked = end  # where the last COMMIT record went
        self._cut_tail = cut_tail  # the next write removes what lies behind it in the tail's file
        self._discarded = False
        self._unfit = segments[-1] if unfit_tail else None  # damaged: not to be appended to
        self._limit = 0  # where the tail is full; see `retarget`
        self._missing = missing  # sequences in segments that could not be read: removed by nobody
        self._last_serial = last_serial  # of the files there are, readable or not
        self._jump = jump  # the next segment does not follow from the records there are
        self._statements: list[bytes] = []
        self._writes: list[SegmentWrite] = []
        self._cut_bytes = 0  # what those writes hold
        self._opened: list[Segment] = []
        self._sealed: list[Segment] = []
        self._relog = [*unrecorded]  # removals to be recorded, though nothing is removed
        self._holes: list[tuple[Segment, int]] = []  # to be given back after the next flush
        self._copies = copies or RemovalCopies(directory)
        self.is_placed = is_placed
        """Whether it has a directory, or will have by the flush under way: what is written first makes it."""
        self.clean = (segments[-1].durable or not is_placed) and not unrecorded
        self.retarget()
        if not segments[-1].durable:
            self._opened.append(segments[-1])
        elif last_serial > segments[-1].serial:
            self._roll()  # nothing more is recorded before a file that cannot be read now

    @property
    def staged_bytes(self) -> int:
        """What the next flush will take of this stream."""
        return self._cut_bytes + self._end - self._write_from

    # -- appending

    def append(self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int) -> int:
        """Stage one message; return its sequence. StoreError: it is too large, or nothing may be changed."""
        if self.clean:
            self.check_writable()
        table = self.table
        sid = table.ids.get(subject)
        if sid is None:
            sid = self._intern(subject)
        sequence = self.last_seq + 1
        record = encode_message(sequence, subject, headers, payload, timestamp_ns, self._salt)
        size = len(record)
        if self._end + size > self._limit:
            self._make_room(size)
            record = encode_message(sequence, subject, headers, payload, timestamp_ns, self._salt)
        if headers:
            self.segments[-1].bare = False
        add_offset, add_size, add_sid, add_stamp, add_part = self._push
        add_part(record)
        add_offset(self._end)
        add_size(size)
        add_sid(sid)
        add_stamp(timestamp_ns)
        if table.counts[sid]:
            if self.superseded is not None:
                self.superseded.append((sid, table.lasts[sid]))
            table.counts[sid] += 1
        else:
            table.add(sid, sequence, sequence, 1)
        table.lasts[sid] = sequence
        if self.search.occurrences is not None:
            self.search.occurrences.add(sid, sequence)
        self._end += size
        self.messages += 1
        self.bytes += size
        self.last_seq = sequence
        return sequence

    def append_many(
        self,
        subjects: Sequence[bytes],
        payloads: Sequence[bytes],
        timestamp_ns: int,
        blocks: Sequence[bytes] = (),
    ) -> None:
        total = len(payloads)
        full = self._end + records_bytes(subjects, payloads, blocks) > self._limit
        if not total or full or max(map(len, subjects)) > SUBJECT_MAX:
            appends.append_each(self, subjects, payloads, timestamp_ns, blocks)
            return
        if self.clean:
            self.check_writable()
        sids, sequence = self.table.intern_each(subjects), self.last_seq + 1
        is_of_one = len(sids) == 1
        if is_of_one:
            sids = [*sids] * total
        is_noted = self.superseded is not None or self.search.occurrences is not None
        self.segments[-1].bare &= not any(blocks)
        records = encode_run(sequence, subjects, blocks, payloads, timestamp_ns, self._salt)
        self._add_records(records, sids, array("q", (timestamp_ns,)) * total)
        if is_of_one and not is_noted:
            self.table.add(sids[0], sequence, self.last_seq, total)
        else:
            appends.count_each(self, sids)

    def append_open(self, messages: Sequence[Staged]) -> None:
        """Stage messages there is room for, none of which expires; all but the last are open."""
        sids = self.table.intern_each([message[0] for message in messages])
        records = encode_open(self.last_seq + 1, messages, self._salt)
        self._add_records(records, sids, array("q", [message[3] for message in messages]))
        self.segments[-1].bare &= not any([message[1] for message in messages])  # noqa: C419
        appends.count_each(self, sids)

    def _add_records(self, records: list[bytes], sids: Sequence[int], stamps: array[int]) -> None:
        """Stage records there is room for; whoever calls counts their subjects."""
        self._chunk.parts += records
        end = self.segments[-1].extend(self._end, list(map(len, records)), sids, stamps)
        self.last_seq += len(records)
        self.messages += len(records)
        self.bytes += end - self._end
        self._end = end

    def make_room(self, nbytes: int) -> None:
        """Make room for so many bytes in one piece. Raises StoreError if nothing may be changed."""
        self.check_writable()
        if self._end + nbytes > self._limit:
            self._make_room(nbytes)
            self._limit = max(self._limit, self._end + nbytes)

    def flag_last(self, flag: int) -> None:
        """Set a flag in the record that was appended last."""
        parts = self._chunk.parts
        parts[-1] = flagged(parts[-1], flag, self._salt)

    def _intern(self, subject: bytes) -> int:
        if len(subject) > SUBJECT_MAX:
            raise StoreError(f"a subject may have {SUBJECT_MAX} bytes; this one has {len(subject)}")
        return self.table.intern(subject)

    def _make_room(self, size: int) -> None:
        if size > _RECORD_MAX:
            raise StoreError(f"a message may take {_RECORD_MAX} bytes on disk; this one {size}")
        tail = self.segments[-1]
        if len(tail) or tail.sealed:
            self._roll()

    def _roll(self) -> None:
        """Leave the tail and begin a new segment at the next sequence."""
        self._cut()
        tail = self.segments[-1]
        tail.sealed = True
        tail.data_end, tail.final_seq = self._end, self.last_seq
        if tail is not self._unfit:  # a damaged one is read again at every start, and reported
            self._sealed.append(tail)
        if not tail.live:
            self.removals.died.append(tail)
        serial, base = max(tail.serial, self._last_serial) + 1, self.last_seq + 1
        path = segment_path(self.directory, serial)
        segment = Segment(serial, base, salt=self._cache.salt(), path=path)
        segment.bare = True
        self.segments.append(segment)
        self.bases.append(base)
        self._opened.append(segment)
        self._end = self._write_from = self._marked = HEADER_BYTES
        self._cut_tail = False
        self.retarget()

    def retarget(self) -> None:
        """Point the append path at the tail."""
        tail = self.segments[-1]
        tail.ensure()
        follows = tail.rel is None and tail.base + len(tail) == self.last_seq + 1
        if tail is self._unfit or not follows:
            tail.sealed = True
            self._limit = 0  # the next message begins a new segment
        else:
            tail.sealed, tail.max_ns = False, None
            self._limit = self._cache.segment_bytes
        if not tail.chunks:
            self._open_chunk(tail)
        self._salt = tail.salt
        self._chunk = tail.chunks[-1]
        self._push = pushes(tail, self._chunk)

    def _open_chunk(self, tail: Segment) -> None:
        chunk = Chunk(len(tail))
        tail.chunks.append(chunk)
        self._cache.recent.add(self, tail, chunk)
        self._staged_parts = 0

    def skip_past(self, last_seq: int) -> None:
        """Sequences up to ``last_seq`` will not be used; the next append begins a segment."""
        self.last_seq = last_seq
        if not self.messages:
            self.first = last_seq + 1
        self._state(encode_skip(last_seq, self._salt))
        self.retarget()

    # -- staging

    def stage(self, work: Work) -> Part:
        """Turn what changed since the last flush into writes; what to do once they are durable."""
        self.clean = True
        relog = self._relog
        if relog:
            self._relog = []
        ranges = self._state_removals(relog, work)
        if self._end - self._marked >= _COMMIT_EVERY:
            durable_end = self._durable_end if self.segments[-1].durable else 0
            self._state(encode_commit(self.durable_seq, durable_end, self._salt))
            self._marked = self._end
        self._cut()
        part = self.removals.begin_part()
        part.tail, part.end = self.segments[-1], self._end
        if not self.is_placed:
            if not self._writes:
                return part
            self.is_placed = part.made = True
            work.directories.append(self.directory)
        if self._chunk.nbytes >= _CHUNK_BYTES:
            self.segments[-1].live_counts()  # now and then some, rather than all when asked for
            self._open_chunk(self.segments[-1])
            self.retarget()
        if self._opened or self._sealed:
            part.opened, self._opened = self._opened, []
            part.sealed, self._sealed = self._sealed, []
        if ranges:
            part.ranges, part.relog = ranges, relog
        if self._holes:
            part.holes, self._holes = self._holes, []
        work.writes += self._writes
        self._writes.clear()
        self._cut_bytes = 0
        mark = encode_watermark(self.last_seq, part.tail.serial, self._end)
        work.marks.append((self._mark_path, mark))
        return part

    def _state(self, record: bytes) -> None:
        self._statements.append(record)
        self._end += len(record)

    def _state_removals(self, relog: list[tuple[int, int]], work: Work) -> list[tuple[int, int]]:
        removals = self.removals
        if not (relog or removals.removed or removals.died) and self.first <= removals.floor:
            return relog
        ranges = ranges_of_each(
            [sequence for sequence in self.removals.removed if sequence >= self.first]
        )
        if self.first > self.removals.floor:
            ranges.append((1, self.first - 1))  # all of it, if an earlier record gets damaged
            self.lost.forget_below(self.first)
        ranges += [emptied_range(self.segments, dead) for dead in self.removals.died]
        ranges = coalesce(relog + subtract(coalesce(ranges), self._missing))
        if not ranges:
            return ranges
        records = encode_removals(self.last_seq, ranges, self._salt)
        for record in records:
            self._state(record)
            self._state(record)  # whatever becomes of one of them
        # … and again in another file, whatever becomes of both.
        work.copies.append(self._copies.write(self.segments[-1], self.last_seq, records, ranges))
        return ranges

    def _cut(self) -> None:
        """What has gathered for the tail's file becomes one write."""
        tail = self.segments[-1]
        parts = self._chunk.parts
        buffers = parts[self._staged_parts :] if self._staged_parts else parts[:]
        messages = bool(buffers)
        buffers += self._statements
        if not buffers and not self.is_placed:
            return
        header = None
        if self._opened and self._opened[-1] is tail and self._write_from == HEADER_BYTES:
            header = self._header(tail)
        if not buffers and header is None:
            return
        nbytes = self._end - self._write_from
        where, ceiling = self._write_from, self._cache.segment_bytes
        self._writes.append(
            SegmentWrite(
                tail.path, where, buffers, nbytes, header, self._cut_tail, messages, ceiling
            )
        )
        self._cut_bytes += nbytes
        self._cache.recent.grow(self._chunk, nbytes)
        self._staged_parts = len(parts)
        self._write_from = self._end
        self._statements.clear()
        self._cut_tail = False

    def _header(self, tail: Segment) -> bytes:
        created = self._cache.clock.now_ns()
        tail.jump, tail.tells = self._jump, True
        start = tail.salt, tail.serial, tail.base, created, tail.jump
        return encode_header(Header(self.name, *start, tells=True))

    # -- completion

    def complete(self, part: Part) -> None:
        """The oldest part in flight is on disk."""
        if self._discarded:
            self.durable_seq = self.removals.inflight.popleft().last_seq
            return  # its files are gone, and their paths may belong to a stream of the same name
        self._durable_end = part.end
        if part.ranges and part.tail is not None:
            note_removals(part.tail.removals, part.ranges)
        for segment in part.opened:
            segment.durable = True
            self._jump = False
        for segment in part.sealed:
            self._cache.chore(self.seal_chore(segment))
            self.note_sparse(segment)
        for segment in self.removals.complete(part):
            self._retire(segment)
        for segment, end in part.holes:
            if segment in self.segments:
                self._cache.chore(punch_chore(segment, end))
        if self._cache.is_full and part.first > part.floor:
            self.give_back()
        tail = self.segments[-1]
        idle = not self.removals.inflight and self.clean
        if idle and not tail.live and self._end > HEADER_BYTES + _ROLL_DEAD:
            self._restage()
            self._roll()

    def _restage(self) -> None:
        """There is something for the next flush, whoever calls for it."""
        self._cache.restage(self)
        self.clean = False

    def fail(self) -> None:
        """Take back everything that is not on disk; see ``Removals.fail``."""
        self._copies.forget()
        self._relog[:0] = [pair for part in self.removals.inflight for pair in part.relog]
        self.is_placed &= not any(part.made for part in self.removals.inflight)
        self.removals.fail()
        self.clean = True  # nothing of it is staged any more: the next change has to say so again
        self._holes = []
        if self._relog:
            self._restage()
        tail = self.segments[-1]
        self._end = self._write_from = self._durable_end
        self._marked = min(self._marked, self._end)
        self._staged_parts = len(tail.chunks[-1].parts) if tail.chunks else 0
        self._statements, self._writes = [], []
        self._cut_bytes = 0
        self._opened, self._sealed, self._cut_tail = [], [], True
        if not tail.durable:
            self._opened.append(tail)
        self.retarget()

    def _retire(self, segment: Segment) -> None:
        index = self.segments.index(segment)
        needed = recorded_only_in(self.segments, index)
        if needed:
            # What nobody after it says of those before it: say it again, then it can go.
            self._relog += needed
            segment.removals = []
            self.removals.died.append(segment)
            self._restage()
            return
        del self.segments[index]
        del self.bases[index]
        self.forget_totals(segment)
        self._cache.discard(segment)
        if segment.generation:  # a compaction that was cancelled too late may have left the next
            newest = segment_path(self.directory, segment.serial, segment.generation)
            self._cache.chore(unlink_chore(newest))
        self._cache.chore(unlink_chore(copy_path(self.directory, segment.serial), segment.path))

    def give_back(self) -> None:
        """The disk is full: free what the head of the stream has left of its segment, by the next flush."""
        head, floor = self.head_segment(), self.removals.durable_first
        found = hole_before(head, floor, self.durable_seq) if self.messages else None
        if found is not None and not self._discarded:
            self._relog += found[1]
            self._marked = min(self._marked, self._end - _COMMIT_EVERY)
            self._holes.append((head, found[0]))
            self._restage()

    def note_sparse(self, segment: Segment) -> None:
        """Messages inside a segment have gone: is it worth compacting?"""
        if is_sparse(segment, self._cache.segment_bytes):
            self._cache.compactor.note(self, segment)

    def switch(self, done: Compaction) -> None:
        """The compacted file is on disk: use it from now on, and remove the old one."""
        segment, old = done.segment, done.segment.path
        done.install(self.first)
        self.forget_totals(segment)
        self._cache.discard(segment)
        segment.path = done.target
        self._cache.chore(unlink_chore(old))

    def discard(self) -> None:
        """The stream is deleted: it is empty from now on, and changes raise StoreError."""
        self._discarded = self.clean = True
        for segment in self.segments:
            self._cache.discard(segment)
        self.messages = self.bytes = 0
        self.first = self.last_seq + 1
        self.remains, self.table = self.table, SubjectTable()
        self.views.clear()
        self.removals.died.clear()
        self._chunk = Chunk(0)
        self._push = pushes(Segment(0, self.first), self._chunk)  # and not what the tail holds

    def closing_chore(self, worth: int) -> Chore | None:
        """A footer for the tail, if it has so many messages and none yet."""
        tail = self.segments[-1]
        if len(tail) < worth or self._cut_tail or self._unfit is tail or not self.clean:
            return None
        tail.data_end, tail.final_seq = self._end, self.last_seq
        return seal_chore(tail, self.table.names)

    def seal_chore(self, segment: Segment) -> Chore:
        """Writes the footer of a segment, as long as it stands before the tail."""
        return seal_chore(segment, self.table.names, lambda: self._is_before_the_tail(segment))

    def _is_before_the_tail(self, segment: Segment) -> bool:
        return not self._discarded and segment is not self.segments[-1]

    def let_go(self, segment: Segment, chunk: Chunk) -> bool:
        """Whether the chunk may leave the memory now: it is durable and not being filled."""
        last = segment.sequence(chunk.first + len(chunk.parts) - 1) if chunk.parts else 0
        if last > self.durable_seq or not segment.durable:
            return False
        if chunk is self._chunk:
            if self._statements or len(chunk.parts) > self._staged_parts:
                return False
            self._open_chunk(segment)
            self.retarget()
        return True


def new_log(
    name: str,
    directory: str,
    cache: SegmentCache,
    *,
    serial: int = 1,
    last_seq: int = 0,
    missing: Sequence[tuple[int, int]] = (),
    is_placed: bool = False,
) -> FileLog:
    """An empty stream. Its first segment is created by the next flush; where it has no directory, by the
    first one that has something for it, which makes that."""
    segment = Segment(serial, last_seq + 1, salt=cache.salt(), path=segment_path(directory, serial))
    segment.bare = True
    return FileLog(
        name,
        directory,
        cache,
        [segment],
        SubjectTable(),
        last_seq=last_seq,
        first=last_seq + 1,
        jump=last_seq > 0,
        missing=missing,
        last_serial=serial,
        is_placed=is_placed,
    )
