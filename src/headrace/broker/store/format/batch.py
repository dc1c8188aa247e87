"""The commit log's file: a header, and one batch for each commit.

::

    0          2048       4096
    ┌──────────┬──────────┬───────────────────────────────────┬──────────────────┬ ─ ─
    │ header   │ the same │ batch: head │ table │ data │ CRC  │ next batch
    │          │ again    │                                   │
    └──────────┴──────────┴───────────────────────────────────┴──────────────────┴ ─ ─

A batch holds the bytes that one commit has appended to files: segments, and the journal of metadata. It is
there whole or it does not count. The table says which bytes belong where, and what the watermark beside
each file becomes; it has a checksum of its own, so that damaged data can still be told from data that never
was. Both checksums are seeded with the file's salt, which is a new one each time the file is written anew:
what its life before has left is no batch.

Batches are numbered through. ``settled`` in each says up to which number all data had been synced where it
belongs when it was written.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from .version import LOG_FORMAT, refused
from .watermark import WATERMARK_BYTES

HEADER_BYTES: Final = 4096
_COPY_BYTES: Final = HEADER_BYTES // 2
_MAGIC: Final = b"HRCOMLOG"
_BATCH_MAGIC: Final = b"HRBATCH\0"
_HEADER: Final = struct.Struct("<8sHIQQ")  # magic, version, salt, number of the first batch, log
_HEAD: Final = struct.Struct("<8sQQQII")
_SHARE: Final = struct.Struct("<HIQI")
_U32: Final = struct.Struct("<I")
EMPTY_BYTES: Final = _HEAD.size + 2 * _U32.size
"""What a batch without data takes."""
_OFFSET_MAX: Final = 1 << 40  # no file of a store is as large
_PLACE: Final = re.compile(r"(?:streams/[^/\0.]+/[0-9.]+\.seg|meta/journal-\d{8,})", re.ASCII)


class LogHeader(NamedTuple):
    """``salt`` seeds the checksums; ``first`` is the number of the first batch, 0 before there is one.

    ``log`` is which log it is, as the store's directory says of the one that it has (``version.py``).
    """

    salt: int
    first: int
    log: int


class Share(NamedTuple):
    """Bytes of a batch for one file.

    ``path`` is relative to the store's directory. ``salt`` is that of the file, by which another one in its
    place is known. ``mark`` is the content of the watermark file beside it, empty if that stays as it is.
    """

    path: str
    salt: int
    offset: int
    mark: bytes
    data: bytes


class FoundBatch(NamedTuple):
    """A batch as it was read. ``whole`` is False where its data is damaged; then the shares have none.

    It goes from ``offset`` to ``end``.
    """

    number: int
    settled: int
    shares: list[Share]
    whole: bool
    offset: int
    end: int


def encode_log_header(header: LogHeader) -> bytes:
    """The first HEADER_BYTES of a file."""
    body = _HEADER.pack(_MAGIC, LOG_FORMAT, *header)
    return (body + _U32.pack(crc32(body))).ljust(_COPY_BYTES, b"\0") * 2


def decode_log_header(data: bytes, path: str) -> LogHeader | None:
    """The header, or None if neither copy is whole. Raises StoreFormatError if a newer version wrote it."""
    versions = []
    for at in (0, _COPY_BYTES):
        copy = data[at : at + _COPY_BYTES]
        if len(copy) < _COPY_BYTES or copy[:8] != _MAGIC:
            continue
        _, version, salt, first, log = _HEADER.unpack_from(copy)
        if version != LOG_FORMAT:
            versions.append(version)
        elif _U32.unpack_from(copy, _HEADER.size)[0] == crc32(copy[: _HEADER.size]):
            return LogHeader(salt, first, log)
    if len(versions) == 2 and versions[0] == versions[1] > LOG_FORMAT:
        raise refused(path, versions[0], LOG_FORMAT)
    return None


def encode_batch(number: int, settled: int, shares: Sequence[Share], salt: int) -> bytes:
    """The batch as it stands in a file with this salt."""
    table: list[bytes] = []
    for path, its_salt, offset, mark, data in shares:
        name = path.encode()
        table.append(_SHARE.pack(len(name), its_salt, offset, len(data)))
        table.append(name)
        table.append(mark or bytes(WATERMARK_BYTES))
    said = b"".join(table)
    data = b"".join([share[4] for share in shares])
    size = EMPTY_BYTES + len(said) + len(data)
    head = _HEAD.pack(_BATCH_MAGIC, size, number, settled, len(said), len(shares))
    return b"".join(
        (
            head,
            said,
            _U32.pack(crc32(said, crc32(head, salt))),
            data,
            _U32.pack(crc32(data, salt)),
        )
    )


def batches(data: bytes, header: LogHeader) -> Iterator[FoundBatch]:
    """The batches in a file's content, in order. Damage is passed over; whoever counts notices it."""
    number, at = header.first - 1, HEADER_BYTES
    while (at := data.find(_BATCH_MAGIC, at)) >= 0:
        found = _batch_at(data, at, header.salt)
        if found is None or found.number <= number:
            at += 1
            continue
        number, at = found.number, found.end
        yield found


def _batch_at(data: bytes, at: int, salt: int) -> FoundBatch | None:
    """The batch that begins there; None if none does."""
    if at + EMPTY_BYTES > len(data):
        return None
    _, size, number, settled, said_len, count = _HEAD.unpack_from(data, at)
    start = at + _HEAD.size
    stop = start + said_len
    end = at + size
    if stop + 8 > end or end > len(data):
        return None
    said = data[start:stop]
    if _U32.unpack_from(data, stop)[0] != crc32(said, crc32(data[at:start], salt)):
        return None
    body = data[stop + 4 : end - 4]
    whole = _U32.unpack_from(data, end - 4)[0] == crc32(body, salt)
    shares = _shares(said, count, body if whole else b"")
    if shares is None:
        return None
    # Behind damaged data the next batch is looked for from its head on: the size may be what is damaged.
    return FoundBatch(number, settled, shares, whole, at, end if whole else stop)


def _shares(said: bytes, count: int, body: bytes) -> list[Share] | None:
    """What a table says; None if it says what no store has written."""
    found: list[Share] = []
    at = taken = 0
    for _ in range(count):
        if at + _SHARE.size > len(said):
            return None
        length, salt, offset, size = _SHARE.unpack_from(said, at)
        at += _SHARE.size
        name, mark = said[at : at + length], said[at + length : at + length + WATERMARK_BYTES]
        at += length + WATERMARK_BYTES
        path = name.decode(errors="replace")
        if at > len(said) or offset + size > _OFFSET_MAX or not _PLACE.fullmatch(path):
            return None
        found.append(
            Share(path, salt, offset, mark.strip(b"\0") and mark, body[taken : taken + size])
        )
        taken += size
    return found
