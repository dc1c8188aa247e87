"""Reading a stream's messages from memory or disk, checking every checksum on the way.

Recent records are still in memory as they were encoded. Older ones are read from their segment file:
in blocks when several are wanted that lie together, one by one when not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Final
from zlib import crc32

from ....errors import StoreReadError
from ....message import StoredRow
from ..format.record import CRC_BYTES, FLAG_HEADERS, HEAD_BYTES, OVERHEAD, U32
from ..index.index import Chunk, Segment
from ..io.findings import damage
from .log import StreamLog
from .segment_cache import BLOCK_BYTES, SegmentCache

_BLOCK_WORTH: Final = 8  # so many messages of one block: read the block instead of each
_TOGETHER: Final = 3  # so many messages are made together: fewer are quicker made one by one

# What CRC-32 makes of bytes and the CRC-32 of these after them, whatever they are and it began with.
_SOUND: Final = frozenset({0x2144DF1C})

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
