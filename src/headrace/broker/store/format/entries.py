"""The entries of metadata as records: those of ``record.py`` with kinds of their own.

The key is in place of the subject, the value in place of the payload, a running number in place of the
sequence. The timestamp is the entry's stamp: which change of its key it belongs to, and the how-manieth
delta on it this is. So whoever reads the file notices that something between two entries is missing.
A COMMIT record has in its place how many changes there had been when it was written.
"""

from __future__ import annotations

import struct
from collections.abc import MutableMapping
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from .record import (
    COMMIT,
    HEAD,
    HEAD_BYTES,
    MARK,
    OVERHEAD,
    U32,
    U64,
)
from .version import STORE_FORMAT, is_known, refused

PUT: Final = 1
APPEND: Final = 2
DELETE: Final = 3

SPARE_MAGIC: Final = b"HRSPARES"
_HEADER: Final = struct.Struct("<8sIIQ")
_COPY_BYTES: Final = 64
FILE_HEADER_BYTES: Final = 2 * _COPY_BYTES
_DELTA_BITS: Final = 24
_DELTA_MASK: Final = (1 << _DELTA_BITS) - 1

Values = MutableMapping[str, tuple[bytes, list[bytes]]]


class KeyChange(NamedTuple):
    """One change of a key. ``stamp`` is 0 in files that were written before there were stamps.

    ``ahead``: it is written before what else is committed with it, if the journal is not written anew.
    """

    kind: int
    key: bytes
    value: bytes
    stamp: int = 0
    ahead: bool = False


def put_stamp(change: int) -> int:
    """The stamp of change number ``change``, which sets or deletes a key."""
    return change << _DELTA_BITS


def delta_stamp(change: int, number: int) -> int:
    """The stamp of the delta with this number (from 1) on what that change has set."""
    return change << _DELTA_BITS | number & _DELTA_MASK


def split_stamp(stamp: int) -> tuple[int, int]:
    """A stamp's change and the number of the delta, 0 for the change itself."""
    return stamp >> _DELTA_BITS, stamp & _DELTA_MASK


def encode_entry(entry: KeyChange, number: int, salt: int) -> bytes:
    kind, key, value, stamp, _ahead = entry
    size = OVERHEAD + len(key) + len(value)
    body = HEAD.pack(size, MARK, kind, 0, number, stamp, len(key)) + key + value
    return body + U32.pack(crc32(body, salt))


def encode_commit(number: int, changes: int, durable_end: int, salt: int) -> bytes:
    """A COMMIT record: what was durable before it, and how many changes there had been."""
    body = HEAD.pack(OVERHEAD + 8, MARK, COMMIT, 0, number, changes, 0) + U64.pack(durable_end)
    return body + U32.pack(crc32(body, salt))


def key_and_value(data: bytes, offset: int, size: int, key_len: int) -> tuple[str, bytes]:
    """What a valid record says."""
    at = offset + HEAD_BYTES
    return data[at : at + key_len].decode(), data[at + key_len : offset + size - 4]


def encode_file_header(magic: bytes, salt: int, serial: int) -> bytes:
    """The first FILE_HEADER_BYTES of a file of entries, twice the same."""
    body = _HEADER.pack(magic, STORE_FORMAT, salt, serial)
    return (body + U32.pack(crc32(body))).ljust(_COPY_BYTES, b"\0") * 2


def decode_file_header(magic: bytes, data: bytes, path: str) -> tuple[int, int] | None:
    """Serial and salt, or None if neither copy is whole. Raises StoreFormatError."""
    versions = []
    for at in (0, _COPY_BYTES):
        copy = data[at : at + _COPY_BYTES]
        if len(copy) < _COPY_BYTES or copy[:8] != magic:
            continue
        _, version, salt, serial = _HEADER.unpack_from(copy)
        if not is_known(version):
            versions.append(version)
        elif U32.unpack_from(copy, _HEADER.size)[0] == crc32(copy[: _HEADER.size]):
            return serial, salt
    if len(versions) == 2 and versions[0] == versions[1]:
        raise refused(path, versions[0])
    return None


class SpareWrite(NamedTuple):
    """Entries for a copy; with ``whole`` they replace the file. Encoded by the commit thread.

    ``lasting``: the directory is older, so a new file is synced, or it might be found empty.
    """

    path: str
    offset: int
    entries: list[KeyChange]
    salt: int
    whole: bool
    lasting: bool

    def encode(self) -> bytes:
        parts = [encode_file_header(SPARE_MAGIC, self.salt, 0)] if self.whole else []
        parts += [encode_entry(entry, 0, self.salt) for entry in self.entries]
        return b"".join(parts)


class MetaChange(msgspec.Struct, eq=False):
    """Metadata entries of one flush.

    ``image``, if given, is everything there is after them, for a journal that is due for rewriting;
    ``spares`` is what is written beside, once the entries are on disk.
    """

    entries: list[KeyChange]
    image: list[KeyChange] | None
    spares: list[SpareWrite] = msgspec.field(default_factory=list)
