"""The records of nats-server's message files.

Record:  size u32, its highest bit set if there are headers · sequence u64 · time u64 · subject size u16
· subject ·
         headers size u32, if there are any · headers · payload · HighwayHash u64
The hash is of sequence, time, subject, headers and payload. Its key is the SHA-256 of ``<stream>-<number
of the file>``. The highest bit of the sequence says that the message was erased, the next one that this
record says of an earlier one that it was deleted.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final

from .contents import MESSAGE_BYTES_MAX, MessageContent, SnapshotFormatError
from .highwayhash import HighwayHash, packets

_HEAD: Final = Struct("<IQQH")
_HASH_BYTES: Final = 8
_HAS_HEADERS: Final = 1 << 31
_ERASED: Final = 1 << 63
_DELETES: Final = 1 << 62
_RECORD_BYTES_MAX: Final = MESSAGE_BYTES_MAX + (64 << 10) + 64


def block_hash(stream: str, number: int) -> HighwayHash:
    """What hashes the records of one file."""
    return HighwayHash(sha256(f"{stream}-{number}".encode()).digest())


def encode_record(
    hashes: HighwayHash,
    sequence: int,
    subject: bytes,
    headers: bytes,
    payload: bytes,
    timestamp_ns: int,
) -> bytes:
    """One message."""
    between = len(headers).to_bytes(4, "little") if headers else b""
    size = _HEAD.size + len(subject) + len(between) + len(headers) + len(payload) + _HASH_BYTES
    mark = _HAS_HEADERS if headers else 0
    head = _HEAD.pack(size | mark, sequence, timestamp_ns, len(subject))
    digest = hashes.digest(b"".join((head[4:20], subject, headers, payload)))
    return b"".join((head, subject, between, headers, payload, digest))


def encode_erased(hashes: HighwayHash, sequence: int, timestamp_ns: int) -> bytes:
    """The place of a message that is no more, so that its sequence is not given out again."""
    return encode_record(hashes, sequence | _ERASED, b"", b"", b"", timestamp_ns)


class BlockReader:
    """Reads one file of records, as its bytes come."""

    def __init__(self, stream: str, number: int) -> None:
        self._hashes = block_hash(stream, number)
        self._number = number
        self._data = bytearray()
        self._at = 0
        self.deleted: list[int] = []
        """Sequences of which its records say that they were deleted."""
        self.last_seq = 0
        """The highest sequence a record was about."""

    @property
    def at_end(self) -> bool:
        """Whether what came so far ends where a record does."""
        return self._at == len(self._data)

    def feed(self, data: bytes) -> None:
        del self._data[: self._at]
        self._at = 0
        self._data += data

    def read(self, work: int) -> tuple[list[MessageContent], bool]:
        """Messages for about so many packets of hashing; whether more input is needed.

        Raises SnapshotFormatError.
        """
        found: list[MessageContent] = []
        while work > 0:
            record = self._take()
            if record is None:
                return found, True
            work -= packets(len(record))
            message = self._decode(record)
            if message is not None:
                found.append(message)
        return found, False

    def _take(self) -> bytes | None:
        left = len(self._data) - self._at
        if left < 4:
            return None
        size = int.from_bytes(self._data[self._at : self._at + 4], "little") & ~_HAS_HEADERS
        if not _HEAD.size + _HASH_BYTES <= size <= _RECORD_BYTES_MAX:
            raise SnapshotFormatError(f"a record of {size} bytes in message file {self._number}")
        if left < size:
            return None
        with memoryview(self._data) as view:
            record = bytes(view[self._at : self._at + size])
        self._at += size
        return record

    def _decode(self, record: bytes) -> MessageContent | None:
        size, sequence, stamp_ns, subject_size = _HEAD.unpack_from(record)
        start = _HEAD.size + subject_size
        subject, end = record[_HEAD.size : start], len(record) - _HASH_BYTES
        headers = b""
        if size & _HAS_HEADERS:
            headers_size = int.from_bytes(record[start : start + 4], "little")
            headers = record[start + 4 : start + 4 + headers_size]
            start += 4 + headers_size
        if start > end:
            raise SnapshotFormatError(
                f"a record in message file {self._number} is shorter than its parts"
            )
        payload = record[start:end]
        digest = self._hashes.digest(b"".join((record[4:20], subject, headers, payload)))
        if digest != record[end:]:
            bare = sequence & ~(_ERASED | _DELETES)
            raise SnapshotFormatError(f"the checksum of message {bare} is wrong")
        if sequence & _DELETES:
            self.deleted.append(sequence & ~_DELETES)
            return None
        bare = sequence & ~_ERASED
        self.last_seq = max(self.last_seq, bare)
        if sequence != bare or not sequence:
            return None
        return MessageContent(sequence, subject, headers, payload, stamp_ns)
