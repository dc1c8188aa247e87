"""Reading a stream's messages from memory or disk, checking every checksum on the way.

Recent records are still in memory as they were encoded. Older ones are read from their segment file:
in blocks when several are wanted that lie together, one by one when not.

The ``SegmentCache`` is what the file streams of one storage share: settings, read handles, and two caches
with one budget.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from zlib import crc32

from ....clock import Clock
from ....errors import StoreReadError
from ....message import StoredRow
from ..commit.commit import Chore
from ..format.record import CRC_BYTES, FLAG_HEADERS, HEAD_BYTES, OVERHEAD, U32
from ..index.index import Chunk, Segment
from ..io.files import FileSystem, Handles, unreadable
from ..io.findings import Finding, damage
from .compaction import Compactor
from .log import StreamLog

if TYPE_CHECKING:
    from .file_log import FileLog


BLOCK_BYTES: Final = 256 * 1024
_BLOCKS_MIN: Final = 8
_BLOCK_WORTH: Final = 8  # so many messages of one block: read the block instead of each
_TOGETHER: Final = 3  # so many messages are made together: fewer are quicker made one by one
# What CRC-32 makes of bytes and the CRC-32 of these after them, whatever they are and it began with.
_SOUND: Final = frozenset({0x2144DF1C})


class Recent:
    """Recently appended records, still in memory; the oldest leave first, once they are durable."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: OrderedDict[int, tuple[FileLog, Segment, Chunk]] = OrderedDict()
        self.nbytes = 0

    def add(self, owner: FileLog, segment: Segment, chunk: Chunk) -> None:
        """A chunk that is going to be filled."""
        self._chunks[id(chunk)] = (owner, segment, chunk)

    def grow(self, chunk: Chunk, nbytes: int) -> None:
        """The chunk got so many more bytes."""
        chunk.nbytes += nbytes
        self.nbytes += nbytes

    def discard(self, segment: Segment) -> None:
        for chunk in segment.chunks:
            self._drop(chunk)
        segment.chunks.clear()

    def shrink(self) -> None:
        """Let go of what is beyond the limit, as far as it may go."""
        while self.nbytes > self._limit and self._chunks:
            owner, segment, chunk = next(iter(self._chunks.values()))
            if segment.chunks and segment.chunks[0] is chunk:
                if not owner.let_go(segment, chunk):
                    return
                segment.chunks.pop(0)
            self._drop(chunk)

    def _drop(self, chunk: Chunk) -> None:
        if self._chunks.pop(id(chunk), None) is not None:
            self.nbytes -= chunk.nbytes


class Blocks:
    """Stretches of segment files as read from disk: whole records beginning in one BLOCK_BYTES."""

    def __init__(self, fs: FileSystem, handles: Handles, limit: int) -> None:
        self._fs = fs
        self._handles = handles
        self._limit = max(_BLOCKS_MIN, limit // BLOCK_BYTES)
        self._blocks: OrderedDict[tuple[Segment, int], tuple[int, bytes]] = OrderedDict()

    def cached(self, segment: Segment, number: int, end: int) -> tuple[int, bytes] | None:
        """Where the block begins and its bytes, if it is here and reaches to ``end``."""
        block = self._blocks.get((segment, number))
        if block is None or block[0] + len(block[1]) < end:
            return None
        self._blocks.move_to_end((segment, number))
        return block

    def load(self, segment: Segment, number: int) -> tuple[int, bytes] | None:
        """Read a block; None if the file ends in it. The index says where its records lie.

        Raises StoreReadError.
        """
        offsets = segment.offsets
        first = bisect_left(offsets, number * BLOCK_BYTES)
        last = bisect_left(offsets, (number + 1) * BLOCK_BYTES) - 1
        if segment.chunks:
            last = min(last, segment.chunks[0].first - 1)  # the rest may not be written yet
        start = offsets[first]
        length = offsets[last] + segment.sizes[last] - start
        data = self.read(segment, start, length)
        if len(data) != length:
            return None
        self._blocks[segment, number] = (start, data)
        if len(self._blocks) > self._limit:
            self._blocks.popitem(last=False)
        return start, data

    def read(self, segment: Segment, offset: int, length: int) -> bytes:
        """Read bytes of a segment file; fewer if it ends before.

        Raises StoreReadError if the disk, or the system, cannot read them now.
        """
        try:
            return self._fs.pread(self._handles.get(segment.path), length, offset)
        except OSError as error:
            self._handles.drop(segment.path)
            raise unreadable(error, segment.path) from error

    def forget(self, segment: Segment, number: int) -> None:
        """Do not take this block from memory again: something in it is not as it should be."""
        self._blocks.pop((segment, number), None)

    def discard(self, segment: Segment) -> None:
        self._handles.drop(segment.path)
        for key in [key for key in self._blocks if key[0] is segment]:
            del self._blocks[key]


class SegmentCache:
    """What a file stream is given by its storage."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        *,
        clock: Clock,
        segment_bytes: int,
        cache_bytes: int,
        handles: int,
        salt: Callable[[], int],
        report: Callable[[Finding], None],
        mark_dirty: Callable[[StreamLog], None],
        restage: Callable[[StreamLog], None],
        chore: Callable[[Chore], None],
        notify: Callable[[], None],
    ) -> None:
        self.fs = fs
        self.root = root
        self.clock = clock
        self.segment_bytes = segment_bytes
        self.salt = salt
        self.report = report
        self.mark_dirty = mark_dirty  # before a stream changes; raises StoreError if it must not
        self.restage = restage  # a stream has something for the next flush
        self.chore = chore
        self.compactor = Compactor(chore, notify, clock)
        self.is_full = False  # the disk has refused something since the store was opened
        self.handles = Handles(fs, handles)
        self.recent = Recent(cache_bytes - cache_bytes // 8)
        self.blocks = Blocks(fs, self.handles, cache_bytes // 8)

    def discard(self, segment: Segment) -> None:
        self.compactor.forget(segment)
        self.recent.discard(segment)
        self.blocks.discard(segment)


_unpack_u32 = U32.unpack_from
_first_of = attrgetter("first")


class RecordReader:
    """Turns positions of a stream on disk into messages."""

    def __init__(self, log: StreamLog, cache: SegmentCache) -> None:
        self._log = log
        self._cache = cache

    def decode(
        self, segment: Segment, positions: Sequence[int], out: list[StoredRow], room: int
    ) -> int:
        """See ``Decode``; damaged records are reported, and given up."""
        chunks, begin, total = segment.chunks, positions[0], len(positions)
        if positions[-1] - begin == total - 1:
            positions = range(begin, begin + total)  # nothing is missing between them: quicker
        split = bisect_left(positions, chunks[0].first) if chunks else total
        if split:
            room = self._decode_disk(segment, positions[:split], out, room)
            if room < 0 and out:
                return room
        number = bisect_right(chunks, begin, key=_first_of) - 1
        while split < total:
            number = max(number, 0)
            chunk, number, stop = chunks[number], number + 1, total
            if number < len(chunks):
                stop = bisect_left(positions, chunks[number].first, split)
            if stop > split:
                room = self._decode_recent(segment, chunk, positions[split:stop], out, room)
                if room < 0 and out:
                    return room
                split = stop
        return room

    def _decode_recent(
        self,
        segment: Segment,
        chunk: Chunk,
        positions: Sequence[int],
        out: list[StoredRow],
        room: int,
    ) -> int:
        names, sids, stamps, rel = self._log.table.names, segment.sids, segment.stamps, segment.rel
        parts, first, base = chunk.parts, chunk.first, segment.base
        if len(positions) >= _TOGETHER and rel is None:
            if isinstance(positions, range):
                records = parts[positions.start - first : positions.stop - first]
            else:
                records = [parts[position - first] for position in positions]
            net = sum(map(len, records)) - OVERHEAD * len(records)
            if net <= room:
                return room - self._add_rows(segment, positions, records, out)
        for position in positions:
            record = parts[position - first]
            subject = names[sids[position]]
            at = HEAD_BYTES + len(subject)
            headers = b""
            if record[7] & FLAG_HEADERS:
                headers_len = _unpack_u32(record, HEAD_BYTES)[0]
                at += 4 + headers_len
                headers = record[at - headers_len : at]
            payload = record[at:-CRC_BYTES]
            room -= len(subject) + len(headers) + len(payload)
            if room < 0 and out:
                return room
            sequence = base + (position if rel is None else rel[position])
            out.append((sequence, subject, headers, payload, stamps[position]))
        return room

    def _add_rows(
        self,
        segment: Segment,
        positions: Sequence[int],
        records: Sequence[bytes],
        out: list[StoredRow],
    ) -> int:
        """Append the messages of sound records of a segment never compacted; how many bytes they have."""
        names, base = self._log.table.names, segment.base
        sids, stamps = _picked(segment.sids, positions), _picked(segment.stamps, positions)
        rows = [
            (seq, name := names[sid], b"", record[HEAD_BYTES + len(name) : -CRC_BYTES], ns)
            if not record[7] & FLAG_HEADERS
            else _with_headers(seq, names[sid], record, ns)
            for seq, sid, record, ns in zip(
                map(base.__add__, positions),
                sids,
                records,
                stamps,
                strict=True,
            )
        ]
        out += rows
        headed = len(rows) - [row[2] for row in rows].count(b"")
        return sum(map(len, records)) - OVERHEAD * len(records) - U32.size * headed

    def _decode_disk(
        self, segment: Segment, positions: Sequence[int], out: list[StoredRow], room: int
    ) -> int:
        offsets = segment.offsets
        at = 0
        while at < len(positions):
            number = offsets[positions[at]] // BLOCK_BYTES
            beyond = bisect_left(offsets, (number + 1) * BLOCK_BYTES)
            stop = bisect_left(positions, beyond, at)
            room = self._decode_block(segment, number, positions[at:stop], out, room)
            if room < 0 and out:
                return room
            at = stop
        return room

    def _decode_block(
        self,
        segment: Segment,
        number: int,
        positions: Sequence[int],
        out: list[StoredRow],
        room: int,
    ) -> int:
        """Decode positions whose records begin in one block, checking each record's checksum.

        Raises StoreReadError; what was decoded before stays in ``out``.
        """
        names, sids, stamps, rel = self._log.table.names, segment.sids, segment.stamps, segment.rel
        offsets, sizes, salt, base = segment.offsets, segment.sizes, segment.salt, segment.base
        blocks = self._cache.blocks
        last = positions[-1]
        block = blocks.cached(segment, number, offsets[last] + sizes[last])
        if block is None and len(positions) >= _BLOCK_WORTH:
            try:
                block = blocks.load(segment, number)
            except StoreReadError:
                block = None  # the records one by one show which of them cannot be read
        if block is not None and len(positions) >= _TOGETHER and rel is None:
            records = _sound_records(segment, positions, block, room)
            if records:
                done, positions = positions[: len(records)], positions[len(records) :]
                room -= self._add_rows(segment, done, records, out)
        for position in positions:
            offset, size = offsets[position], sizes[position]
            if block is None:
                record = blocks.read(segment, offset, size)
            else:
                record = block[1][offset - block[0] : offset - block[0] + size]
            body = record[:-CRC_BYTES]
            if len(record) != size or crc32(body, salt) != _unpack_u32(record, size - CRC_BYTES)[0]:
                blocks.forget(segment, number)
                block = None
                record = blocks.read(segment, offset, size)  # the disk may say it right this time
                body = record[:-CRC_BYTES]
                if not _is_sound(record, size, salt):
                    self._damaged(segment, position)
                    continue
            subject = names[sids[position]]
            at = HEAD_BYTES + len(subject)
            headers = b""
            if record[7] & FLAG_HEADERS:
                headers_len = _unpack_u32(record, HEAD_BYTES)[0]
                at += 4 + headers_len
                headers = body[at - headers_len : at]
            payload = body[at:]
            room -= len(subject) + len(headers) + len(payload)
            if room < 0 and out:
                return room
            sequence = base + (position if rel is None else rel[position])
            out.append((sequence, subject, headers, payload, stamps[position]))
        return room

    def _damaged(self, segment: Segment, position: int) -> None:
        """A record does not match its checksum: report it, and do not offer it again.

        Its file stays, however little is left in it: another version, or another tool, may read more.
        """
        sequence = segment.sequence(position)
        where = segment.offsets[position]
        what = "a record does not match its checksum"
        segment.spoilt = True
        self._cache.report(damage(segment.path, where, what, self._log.name, (sequence, sequence)))
        self._log.lost.add([(sequence, sequence)], segment.sizes[position])
        self._log.removals.give_up(segment, position)


def _picked(column: Sequence[int], positions: Sequence[int]) -> Sequence[int]:
    """The numbers at these positions; a slice where none is missing between them."""
    if isinstance(positions, range):
        return column[positions.start : positions.stop]
    return list(map(column.__getitem__, positions))


def _sound_records(
    segment: Segment, positions: Sequence[int], block: tuple[int, bytes], room: int
) -> list[bytes]:
    """The first records of a block that ``room`` bytes are enough for; none if any of these is damaged."""
    begin, data = block
    sizes, offsets = _picked(segment.sizes, positions), _picked(segment.offsets, positions)
    count = len(sizes)
    if sum(sizes) - OVERHEAD * count > room:
        count = bisect_right(list(accumulate(size - OVERHEAD for size in sizes)), room)
    records = [
        data[at - begin : at - begin + size]
        for at, size in zip(offsets[:count], sizes[:count], strict=True)
    ]
    are_sound = set(map(crc32, records, repeat(segment.salt))) == _SOUND
    return records if are_sound and sum(map(len, records)) == sum(sizes[:count]) else []


def _is_sound(record: bytes, size: int, salt: int) -> bool:
    """Whether a record is whole and matches its checksum."""
    if len(record) != size:
        return False
    checksum: int = _unpack_u32(record, size - CRC_BYTES)[0]
    return crc32(record[:-CRC_BYTES], salt) == checksum


def _with_headers(sequence: int, subject: bytes, record: bytes, timestamp_ns: int) -> StoredRow:
    """The fields of a sound record that has headers."""
    at = HEAD_BYTES + len(subject) + U32.size
    end = at + _unpack_u32(record, HEAD_BYTES)[0]
    return sequence, subject, record[at:end], record[end:-CRC_BYTES], timestamp_ns
