"""The records of nats-server's message files.

Record:  size u32, its highest bit set if there are headers · sequence u64 · time u64 · subject size u16
· subject ·
         headers size u32, if there are any · headers · payload · HighwayHash u64
The hash is of sequence, time, subject, headers and payload. Its key is the SHA-256 of ``<stream>-<number
of the file>``. The highest bit of the sequence says that the message was erased, the next one that this
record says of an earlier one that it was deleted.

HighwayHash with 64 bits is the checksum of metadata, too. Four lanes of four 64-bit words take in 32 bytes
at a time. In Python that is some microseconds, so whoever has many records to check counts ``packets``.
"""

from __future__ import annotations

from array import array
from hashlib import sha256
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from .contents import MESSAGE_BYTES_MAX, MessageContent, SnapshotFormatError

_M32: Final = (1 << 32) - 1
_M64: Final = (1 << 64) - 1
_LANES: Final = Struct("<4Q")
_INIT_0: Final = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_INIT_1: Final = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_HALF: Final = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
_ZIPPED: Final = itemgetter(*_HALF, *(place + 16 for place in _HALF))
_FINAL_ROUNDS: Final = 4
_PACKET: Final = 32

_State = tuple[int, ...]
_HEAD: Final = Struct("<IQQH")
_HASH_BYTES: Final = 8
_HAS_HEADERS: Final = 1 << 31
_ERASED: Final = 1 << 63
_DELETES: Final = 1 << 62
_OVERHEAD: Final = 1  # of reading a record, in packets
_RECENT_MAX: Final = 200_000  # more than fit into what a frame may repeat
DELETED_MAX: Final = 1 << 24  # sequences, eight bytes each, kept until the end
_RECORD_BYTES_MAX: Final = MESSAGE_BYTES_MAX + (64 << 10) + 64


def packets(size: int) -> int:
    """How much work it is to hash so many bytes, in units of some microseconds."""
    return size // _PACKET + 1 + _FINAL_ROUNDS


class HighwayHash:
    """Hashes with one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        words = _LANES.unpack(key)
        v0 = [init ^ word for init, word in zip(_INIT_0, words, strict=True)]
        turned = [(word >> 32 | word << 32) & _M64 for word in words]
        v1 = [init ^ word for init, word in zip(_INIT_1, turned, strict=True)]
        self._start: _State = (*v0, *v1, *_INIT_0, *_INIT_1)

    def digest(self, data: bytes) -> bytes:
        """The eight bytes of the hash of ``data``."""
        return _finished(_update(self._start, data), data[len(data) // _PACKET * _PACKET :])

    def begin(self, data: bytes) -> PartialHash:
        """The hash of ``data``, some packets at a time."""
        return PartialHash(self._start, data)


class PartialHash:
    """The hash of something large, taken in a piece at a time."""

    def __init__(self, start: _State, data: bytes) -> None:
        self._state = start
        self._data = memoryview(data)
        self._at = 0

    def run(self, count: int) -> bytes | None:
        """Take in so many packets; the eight bytes of the hash when it is done."""
        end = min(self._at + count * _PACKET, len(self._data) // _PACKET * _PACKET)
        self._state = _update(self._state, self._data[self._at : end])
        self._at = end
        rest = self._data[end : end + _PACKET]
        return _finished(self._state, bytes(rest)) if len(rest) < _PACKET else None


def _finished(state: _State, rest: bytes) -> bytes:
    """The hash when what is left is less than a packet."""
    if rest:
        state = _update_remainder(state, rest)
    for _ in range(_FINAL_ROUNDS):
        turned = [(word >> 32 | word << 32) & _M64 for word in state[:4]]
        state = _update(state, _LANES.pack(turned[2], turned[3], turned[0], turned[1]))
    return ((state[0] + state[4] + state[8] + state[12]) & _M64).to_bytes(8, "little")


def _update(state: _State, data: bytes | memoryview) -> _State:
    """Take in the whole packets of ``data``."""
    a0, a1, a2, a3, b0, b1, b2, b3, m0, m1, m2, m3, n0, n1, n2, n3 = state
    pack, unpack, zipped = _LANES.pack, _LANES.unpack, _ZIPPED
    for d0, d1, d2, d3 in _LANES.iter_unpack(data[: len(data) // _PACKET * _PACKET]):
        b0 = (b0 + d0 + m0) & _M64
        b1 = (b1 + d1 + m1) & _M64
        b2 = (b2 + d2 + m2) & _M64
        b3 = (b3 + d3 + m3) & _M64
        m0 ^= (b0 & _M32) * (a0 >> 32)
        m1 ^= (b1 & _M32) * (a1 >> 32)
        m2 ^= (b2 & _M32) * (a2 >> 32)
        m3 ^= (b3 & _M32) * (a3 >> 32)
        a0 = (a0 + n0) & _M64
        a1 = (a1 + n1) & _M64
        a2 = (a2 + n2) & _M64
        a3 = (a3 + n3) & _M64
        n0 ^= (a0 & _M32) * (b0 >> 32)
        n1 ^= (a1 & _M32) * (b1 >> 32)
        n2 ^= (a2 & _M32) * (b2 >> 32)
        n3 ^= (a3 & _M32) * (b3 >> 32)
        z0, z1, z2, z3 = unpack(bytes(zipped(pack(b0, b1, b2, b3))))
        a0 = (a0 + z0) & _M64
        a1 = (a1 + z1) & _M64
        a2 = (a2 + z2) & _M64
        a3 = (a3 + z3) & _M64
        z0, z1, z2, z3 = unpack(bytes(zipped(pack(a0, a1, a2, a3))))
        b0 = (b0 + z0) & _M64
        b1 = (b1 + z1) & _M64
        b2 = (b2 + z2) & _M64
        b3 = (b3 + z3) & _M64
    return a0, a1, a2, a3, b0, b1, b2, b3, m0, m1, m2, m3, n0, n1, n2, n3


def _update_remainder(state: _State, rest: bytes) -> _State:
    """Take in the last bytes, fewer than a packet: their number turns the state."""
    size = len(rest)
    v0 = [(word + (size << 32) + size) & _M64 for word in state[:4]]
    v1 = [_rotated(word & _M32, size) | _rotated(word >> 32, size) << 32 for word in state[4:8]]
    packet = bytearray(_PACKET)
    whole, left = size & ~3, size & 3
    packet[:whole] = rest[:whole]
    if size & 16:
        packet[28:] = rest[-4:]
    elif left:
        tail = rest[whole:]
        packet[16] = tail[0]
        packet[17] = tail[left >> 1]
        packet[18] = tail[left - 1]
    return _update((*v0, *v1, *state[8:]), bytes(packet))


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _M32


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
