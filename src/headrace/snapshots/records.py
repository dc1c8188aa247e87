"""The records of nats-server's message files.

Record:  size u32, its highest bit set if there are headers · sequence u64 · time u64 · subject size u16
· subject ·
         headers size u32, if there are any · headers · payload · HighwayHash u64
The hash is of sequence, time, subject, headers and payload. Its key is the SHA-256 of ``<stream>-<number
of the file>``. The highest bit of the sequence says that the message was erased, the next one that this
record says of an earlier one that it was deleted.
"""

from __future__ import annotations

from array import array
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from .contents import MESSAGE_BYTES_MAX, MessageContent, SnapshotFormatError
from .highwayhash import HighwayHash, PartialHash, packets

_HEAD: Final = Struct("<IQQH")
_HASH_BYTES: Final = 8
_HAS_HEADERS: Final = 1 << 31
_ERASED: Final = 1 << 63
_DELETES: Final = 1 << 62
_OVERHEAD: Final = 1  # of reading a record, in packets
_RECENT_MAX: Final = 200_000  # more than fit into what a frame may repeat
DELETED_MAX: Final = 1 << 24  # sequences, eight bytes each, kept until the end
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


class _Record(NamedTuple):
    """A message that is read, and whether its checksum is right as far as that is known."""

    message: MessageContent
    expected: bytes
    checksum: PartialHash


class BlockReader:
    """Reads one file of records, as its bytes come."""

    def __init__(self, stream: str, number: int) -> None:
        self._hashes = block_hash(stream, number)
        self._number = number
        self._data = bytearray()
        self._at = 0
        self._record: _Record | None = None
        self._recently_deleted: set[int] = set()
        self.deleted = array("Q")
        """Sequences of which its records say that they were deleted."""
        self.last_seq = 0
        """The highest sequence a record was about."""
        self.passed = 0
        """How many records said nothing that was not known."""

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
            if self._record is None:
                taken = self._take()
                if taken is None:
                    return found, True
                work -= _OVERHEAD
                self._record = self._decode(taken)
            size = max(work, 1)
            digest = self._record.checksum.run(size)
            work -= min(size, packets(len(self._record.message.payload)))
            if digest is None:
                continue
            record, self._record = self._record, None
            if digest != record.expected:
                bare = record.message.sequence & ~(_ERASED | _DELETES)
                raise SnapshotFormatError(f"the checksum of message {bare} is wrong")
            if self._is_message(record.message.sequence):
                found.append(record.message)
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

    def _decode(self, record: bytes) -> _Record:
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
        checksum = self._hashes.begin(b"".join((record[4:20], subject, headers, payload)))
        message = MessageContent(sequence, subject, headers, payload, stamp_ns)
        return _Record(message, record[end:], checksum)

    def _is_message(self, sequence: int) -> bool:
        """Whether a record of this sequence is one; notes what it says if it is none."""
        if sequence & _DELETES:
            self._note_deleted(sequence & ~_DELETES)
            return False
        bare = sequence & ~_ERASED
        is_known = bare <= self.last_seq
        self.last_seq = max(self.last_seq, bare)
        is_message = sequence == bare and bool(sequence)
        self.passed += is_known and not is_message
        return is_message

    def _note_deleted(self, sequence: int) -> None:
        recent = self._recently_deleted
        if sequence in recent:
            self.passed += 1
            return
        if len(recent) >= _RECENT_MAX:
            recent.clear()
        recent.add(sequence)
        self.deleted.append(sequence)
        if len(self.deleted) > DELETED_MAX:
            raise SnapshotFormatError(f"more than {DELETED_MAX} messages are deleted in it")
