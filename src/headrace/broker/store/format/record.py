"""The record: one message, or one statement about messages, in a segment file.

Little-endian, no alignment::

     0        4      6      7       8          16            24          26
    ┌────────┬──────┬──────┬───────┬──────────┬─────────────┬───────────┬──────┄┄┄──────┬───────┐
    │ length │ mark │ kind │ flags │ sequence │ timestamp   │ length of │               │ crc32 │
    │  u32   │ u16  │  u8  │  u8   │   u64    │ i64 (ns)    │ subject   │  the content  │  u32  │
    │        │      │      │       │          │             │    u16    │               │       │
    └────────┴──────┴──────┴───────┴──────────┴─────────────┴───────────┴──────┄┄┄──────┴───────┘

    the content:  [ length of headers, u32 ]  subject  headers  payload

``length`` counts everything, itself and the crc included. The length of headers is there only when
the HEADERS flag is set, so a record is exactly as long as nats-server accounts for the message. The
flag EXPIRES marks a message that expires by itself (whoever opens the stream can tell when, from its
headers), OPEN one that counts only if the next message is there, too. The crc is
CRC-32 of everything before it, seeded with the salt of the segment: bytes of another file, or a record
inside a payload, do not validate. ``mark`` lets recovery find the next record after a damaged one.
A length of 0 is preallocated space: the end.

The kinds:

- MESSAGE: a message of the stream.
- REMOVAL: the payload is pairs of u64, first and last sequence (inclusive) of ranges that are gone.
- SKIP: sequences up to ``sequence`` will not be used; the next message comes after it.
- COMMIT: when this was written, sequences up to ``sequence`` and, in this file, everything before the
  offset in the payload (u64) were durable. So damage before it is not a torn write.

A watermark is a hint how far a log was durable, rewritten in place and never synced for itself. After a
crash of the process it is exact; after a power cut it may be some seconds old, never too high in ``sync =
"always"``. With it recovery tells a torn write, which nobody was told about, from the loss of acknowledged
messages, and does not use their sequences again.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, repeat
from typing import Final, NamedTuple
from zlib import crc32

HEAD: Final = struct.Struct("<IHBBQqH")
U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")
HEAD_BYTES: Final = HEAD.size
CRC_BYTES: Final = 4
OVERHEAD: Final = HEAD_BYTES + CRC_BYTES
MARK: Final = 0xC35A
_MARK_BYTES: Final = MARK.to_bytes(2, "little")
MESSAGE: Final = 1
REMOVAL: Final = 2
SKIP: Final = 3
COMMIT: Final = 4
FLAG_HEADERS: Final = 1
FLAG_EXPIRES: Final = 2
FLAG_OPEN: Final = 4
_FLAGS: Final = FLAG_HEADERS | FLAG_EXPIRES | FLAG_OPEN
_FLAGS_AT: Final = 7
_PLAIN: Final = MARK | MESSAGE << 16
_HEADED: Final = _PLAIN | FLAG_HEADERS << 24
_OPEN: Final = _PLAIN | FLAG_OPEN << 24
"""The form of a record that counts only if the next message is there."""
_COPIED_MAX: Final = 2048  # a larger payload is copied only once, which costs a call more
_RANGES_PER_RECORD: Final = 32_768
_LAYOUT: Final = struct.Struct("<QQQ")
_U32: Final = struct.Struct("<I")
WATERMARK_BYTES: Final = _LAYOUT.size + _U32.size
_pack_head: Final = struct.Struct("<IIQqH").pack  # as HEAD; mark, kind and flags in one: quicker
_pack_u32: Final = U32.pack


class ScannedRecord(NamedTuple):
    """What a scan met: a valid record, or a damaged stretch of bytes (``kind`` 0)."""

    kind: int
    offset: int
    size: int
    sequence: int
    timestamp_ns: int
    flags: int
    subject_len: int


def encode_message(
    sequence: int,
    subject: bytes,
    headers: bytes,
    payload: bytes,
    timestamp_ns: int,
    salt: int,
    form: int = _PLAIN,
) -> bytes:
    """The record of one message, which is ``OPEN`` in that form."""
    length = len(subject)
    size = OVERHEAD + length + len(payload)
    if headers:
        size += 4 + len(headers)
        head = _pack_head(size, form | _HEADED, sequence, timestamp_ns, length)
        if len(payload) > _COPIED_MAX:
            return _copied_once(
                b"".join((head, _pack_u32(len(headers)), subject, headers)), payload, salt
            )
        body = b"".join((head, _pack_u32(len(headers)), subject, headers, payload))
    else:
        head = _pack_head(size, form, sequence, timestamp_ns, length)
        if len(payload) > _COPIED_MAX:
            return _copied_once(head + subject, payload, salt)
        body = head + subject + payload
    return body + _pack_u32(crc32(body, salt))


def _copied_once(start: bytes, payload: bytes, salt: int) -> bytes:
    crc = crc32(payload, crc32(start, salt))
    return b"".join((start, payload, _pack_u32(crc)))


def encode_run(
    first: int,
    subjects: Sequence[bytes],
    blocks: Sequence[bytes],
    payloads: Sequence[bytes],
    timestamp_ns: int,
    salt: int,
) -> list[bytes]:
    """The records of messages from a sequence on; one subject alone stands for all, and without ``blocks``
    none has headers."""
    each = repeat(subjects[0]) if len(subjects) == 1 else subjects
    same = each, blocks or repeat(b""), payloads, repeat(timestamp_ns), repeat(salt)
    return list(map(encode_message, count(first), *same))


def encode_open(
    first: int, messages: Sequence[tuple[bytes, bytes, bytes, int, int]], salt: int
) -> list[bytes]:
    """The records of messages from a sequence on, of which all count or none: all but the last are open.

    A message is its subject, headers, payload and timestamp, and something else.
    """
    subjects, blocks, payloads, stamps, _ = zip(*messages, strict=True)
    forms = chain(repeat(_OPEN, len(messages) - 1), (_PLAIN,))
    fields = count(first), subjects, blocks, payloads, stamps, repeat(salt), forms
    return list(map(encode_message, *fields))


def _seal(body: bytes, salt: int) -> bytes:
    return body + _pack_u32(crc32(body, salt))


def records_bytes(
    subjects: Sequence[bytes], payloads: Sequence[bytes], blocks: Sequence[bytes]
) -> int:
    """At most how long these records are together; one subject alone stands for all."""
    total = len(payloads)
    names = len(subjects[0]) * total if len(subjects) == 1 else sum(map(len, subjects))
    overhead = OVERHEAD + (4 if blocks else 0)
    return overhead * total + names + sum(map(len, payloads)) + sum(map(len, blocks))


def flagged(record: bytes, flag: int, salt: int) -> bytes:
    """The record with one flag more."""
    body = bytearray(record[:-CRC_BYTES])
    body[_FLAGS_AT] |= flag
    return _seal(bytes(body), salt)


def _statement(kind: int, sequence: int, payload: bytes, salt: int) -> bytes:
    head = HEAD.pack(OVERHEAD + len(payload), MARK, kind, 0, sequence, 0, 0)
    return _seal(head + payload, salt)


def encode_removals(sequence: int, ranges: Iterable[tuple[int, int]], salt: int) -> list[bytes]:
    """REMOVAL records for inclusive ranges; ``sequence`` is the last one of the stream by now."""
    flat = array("Q", [end for pair in ranges for end in pair])
    step = 2 * _RANGES_PER_RECORD
    return [
        _statement(REMOVAL, sequence, flat[at : at + step].tobytes(), salt)
        for at in range(0, len(flat), step)
    ]


def encode_skip(sequence: int, salt: int) -> bytes:
    """A SKIP record: the next message comes after ``sequence``."""
    return _statement(SKIP, sequence, b"", salt)


def encode_commit(durable_seq: int, durable_end: int, salt: int) -> bytes:
    """A COMMIT record: what is known to be durable, as a sequence and as an offset in this file."""
    return _statement(COMMIT, durable_seq, U64.pack(durable_end), salt)


def ranges_of(data: bytes, found: ScannedRecord) -> list[tuple[int, int]]:
    """The ranges in a REMOVAL record found in ``data``."""
    flat = array("Q")
    flat.frombytes(data[found.offset + HEAD_BYTES : found.offset + found.size - CRC_BYTES])
    return list(zip(flat[::2], flat[1::2], strict=True))


def try_decode(data: bytes, offset: int, end: int, salt: int) -> ScannedRecord | None:
    """The record at ``offset`` if a whole and valid one lies there before ``end``."""
    if end - offset < OVERHEAD:
        return None
    size, mark, kind, flags, sequence, stamp, subject_len = HEAD.unpack_from(data, offset)
    if mark != MARK or not MESSAGE <= kind <= COMMIT or flags > _FLAGS:
        return None
    if size < OVERHEAD + subject_len or size > end - offset:
        return None
    stop = offset + size - CRC_BYTES
    if crc32(data[offset:stop], salt) != U32.unpack_from(data, stop)[0]:
        return None
    return ScannedRecord(kind, offset, size, sequence, stamp, flags, subject_len)


def scan(data: bytes, start: int, end: int, salt: int) -> Iterator[ScannedRecord]:
    """Every record in ``data[start:end]``; after damage, resume at the next valid record.

    A damaged stretch is yielded with kind 0 before the record that follows it. It ends where the next
    valid record begins or, when none follows, at the last byte that is not zero (a stretch of zeros
    alone is preallocated space and is not yielded).
    """
    offset = start
    while True:
        while (found := try_decode(data, offset, end, salt)) is not None:
            yield found
            offset += found.size
        resumed = resync(data, offset, end, salt)
        if resumed is None:
            break
        yield ScannedRecord(0, offset, resumed - offset, 0, 0, 0, 0)
        offset = resumed
    used = len(data[offset:end].rstrip(b"\0"))
    if used:
        yield ScannedRecord(0, offset, used, 0, 0, 0, 0)


def resync(data: bytes, offset: int, end: int, salt: int) -> int | None:
    """Where the next valid record after ``offset`` begins, or None."""
    at = offset + 1
    while (mark_at := data.find(_MARK_BYTES, at + 4, end)) >= 0:
        at = mark_at - 4
        if try_decode(data, at, end, salt) is not None:
            return at
        at += 1
    return None


class Watermark(NamedTuple):
    """Durable up to a sequence, and in the file numbered ``serial`` up to an offset."""

    sequence: int
    serial: int
    end: int

    def encode(self) -> bytes:
        return encode_watermark(*self)


def encode_watermark(sequence: int, serial: int, end: int) -> bytes:
    """The content of a watermark's file."""
    body = _LAYOUT.pack(sequence, serial, end)
    return body + _U32.pack(crc32(body))


def decode_watermark(data: bytes) -> tuple[Watermark, bool]:
    """The watermark in the bytes of its file, zeros if there is none; and whether it is damaged."""
    nothing = Watermark(0, 0, 0)
    if not data.strip(b"\0"):
        return nothing, False
    body = data[: _LAYOUT.size]
    if len(data) != WATERMARK_BYTES or _U32.unpack(data[_LAYOUT.size :])[0] != crc32(body):
        return nothing, True
    return Watermark(*_LAYOUT.unpack(body)), False
