"""The Snappy framing format with the S2 identifier: chunks with a checksum, compressed or not.

We write chunks as they are: compressing in Python would cost the loop more than the network saves.
Reading knows all of S2: repeated offsets, blocks of up to 4 MiB, indexes and padding.

One block of S2 is Snappy's with two additions: offsets that repeat, and larger blocks. A block is its
decoded size and then elements. An element is either bytes to take as they are, or says how many bytes to
repeat from how far back. An offset of zero in the shortest form means the offset of the last copy again.

The checksum is CRC-32C (Castagnoli). The standard library has CRC-32 with another polynomial alone. A
table lookup per byte takes 70 ns in Python; this takes about one. The checksum is the remainder of the
data, as a polynomial over GF(2), by ``P``. Some multiples of ``P`` have four terms: with ``x^a = x^b + x^c
+ 1 (mod P)`` what lies ``a`` bits ahead is moved here by three shifts of a large integer, which Python
does at the speed of memory.

Bits are reflected, as the checksum wants them: the first bit of the data has the highest power.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .contents import SnapshotFormatError

_POLYNOMIAL: Final = 0x82F63B78  # reflected
_LARGE: Final = (90224, 666, 494)  # a is a whole number of bytes
_SMALLER: Final = ((24016, 637, 581), (6777, 484, 100))
_BLOCK: Final = _LARGE[0] // 8
_ONES: Final = 0xFFFFFFFF
ELEMENTS_PER_RUN: Final = 4000  # about a millisecond
_LONG_LITERAL: Final = 60
IDENTIFIER: Final = b"\xff\x06\x00\x00S2sTwO"
FRAME_BYTES_MAX: Final = 4 << 20  # of data in one chunk
_NAMES: Final = (b"S2sTwO", b"sNaPpY")
_COMPRESSED: Final = 0x00
_PLAIN: Final = 0x01
_IDENTIFIER: Final = 0xFF
_SKIPPABLE: Final = 0x80
_BODY_MAX: Final = FRAME_BYTES_MAX + (FRAME_BYTES_MAX >> 3) + 64
"""More than S2 makes of any block of 4 MiB."""


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


_TABLE: Final = _table()


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C of ``data``."""
    size = len(data)
    if size < 4:
        crc = _ONES
        for byte in bytes(data):
            crc = _TABLE[crc & 0xFF ^ byte] ^ crc >> 8
        return crc ^ _ONES
    value, width = _gathered(data, size)
    for a, b, c in _SMALLER:
        while width > a + 64:
            # The front, of as many bits as neither overlap nor reach beyond the end.
            gap = min(a - b, width - a)
            front = value & (1 << gap) - 1
            value >>= gap
            width -= gap
            value ^= front << a - b - gap ^ front << a - c - gap ^ front << a - gap
    crc = 0
    value <<= -width % 8
    for byte in value.to_bytes((width + 7) // 8, "little"):
        crc = _TABLE[crc & 0xFF ^ byte] ^ crc >> 8
    return crc ^ _ONES


def masked(crc: int) -> int:
    """As the framing format stores a checksum: rotated, and moved by a constant."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


def _gathered(data: bytes | bytearray | memoryview, size: int) -> tuple[int, int]:
    """All blocks of the data added up into one: its bits, and how many there are."""
    first = (size - 1) % _BLOCK + 1
    a, b, c = _LARGE
    value = int.from_bytes(data[:first], "little") ^ _ONES
    width = first * 8
    if first < 4:  # the ones reach beyond the first block: take two
        first = min(first + _BLOCK, size)
        value = int.from_bytes(data[:first], "little") ^ _ONES
        width = first * 8
    for at in range(first, size, _BLOCK):
        block = int.from_bytes(data[at : at + _BLOCK], "little")
        value ^= value << b - c ^ value << b
        width = width + b
        if width < a:
            value <<= a - width
            width = a
        value ^= block << width - a
    return value, width


_LITERAL, _COPY_1, _COPY_2 = range(3)


class BlockDecoder:
    """One block, decoded some elements at a time into ``output``."""

    def __init__(self, block: bytes, most: int) -> None:
        """Raises SnapshotFormatError if it would decode to more than ``most`` bytes."""
        self._block = block
        self.size, self._at = _decoded_size(block)
        if self.size > most:
            raise SnapshotFormatError(f"a block of {self.size} bytes; at most {most} are read")
        self.output = bytearray()
        self._offset = 0

    def run(self, elements: int = ELEMENTS_PER_RUN) -> bool:
        """Decode up to so many elements; whether the block is done. Raises SnapshotFormatError."""
        try:
            at = self._run(elements)
        except IndexError:
            raise SnapshotFormatError("a block ends within an element") from None
        if at > len(self._block) or len(self.output) > self.size:
            raise SnapshotFormatError("a block is longer than it says")
        self._at = at
        if at < len(self._block):
            return False
        if len(self.output) != self.size:
            raise SnapshotFormatError("a block is shorter than it says")
        return True

    def _run(self, elements: int) -> int:
        block, output, offset, at = self._block, self.output, self._offset, self._at
        end, most = len(block), self.size
        for _ in range(elements):
            if at >= end or len(output) > most:
                break
            tag = block[at]
            kind = tag & 3
            if kind == _LITERAL:
                length = (tag >> 2) + 1
                at += 1
                if length > _LONG_LITERAL:
                    extra = length - _LONG_LITERAL
                    length = int.from_bytes(block[at : at + extra], "little") + 1
                    at += extra
                output += block[at : at + length]
                at += length
                continue
            if kind == _COPY_1:
                near = (tag & 0xE0) << 3 | block[at + 1]
                length = (tag >> 2 & 7) + 4
                at += 2
                if near:
                    offset = near
                elif length > 8:
                    length, at = _long_repeat(block, length - 8, at)
            elif kind == _COPY_2:
                offset = block[at + 1] | block[at + 2] << 8
                length = (tag >> 2) + 1
                at += 3
            else:
                offset = int.from_bytes(block[at + 1 : at + 5], "little")
                length = (tag >> 2) + 1
                at += 5
            start = len(output) - offset
            if offset == 0 or start < 0:
                raise SnapshotFormatError("a block refers to what is not there")
            if offset >= length:
                output += output[start : start + length]
            elif len(output) + length <= most:
                pattern = bytes(output[start:])
                output += (pattern * (length // offset + 1))[:length]
            else:
                raise SnapshotFormatError("a block is longer than it says")
        self._offset = offset
        return at


def _long_repeat(block: bytes, extra: int, at: int) -> tuple[int, int]:
    """The length of a repeat that takes ``extra`` more bytes to say, and where it ends."""
    if at + extra > len(block):
        raise SnapshotFormatError("a block ends within an element")
    length = int.from_bytes(block[at : at + extra], "little")
    return length + (4, 1 << 8, 1 << 16)[extra - 1] + 4, at + extra


def _decoded_size(block: bytes) -> tuple[int, int]:
    """The size a block begins with, and where its elements do."""
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size, at + 1
    raise SnapshotFormatError("a block does not say its size")


def frame(data: bytes) -> bytes:
    """One chunk that holds ``data``, at most 4 MiB of it, as it is."""
    head = bytes((_PLAIN,)) + (len(data) + 4).to_bytes(3, "little")
    return b"".join((head, masked(crc32c(data)).to_bytes(4, "little"), data))


class FrameReader:
    """Reads frames from chunks of bytes cut anywhere, a bounded piece of work at a time.

    ``feed`` what came, then ask ``step`` until it returns None: more is needed. ``step`` returns the
    data it has decoded, or nothing yet, of the frame it is at. Raises SnapshotFormatError.
    """

    def __init__(self) -> None:
        self._input = bytearray()
        self._identified = False
        self._block: BlockDecoder | None = None
        self._crc = 0

    @property
    def buffered(self) -> int:
        """How many bytes it holds that it has not decoded."""
        return len(self._input)

    @property
    def at_end(self) -> bool:
        """Whether the input so far ends where a frame does."""
        return self._identified and not self._input and self._block is None

    def feed(self, chunk: bytes) -> None:
        self._input += chunk

    def step(self) -> bytes | None:
        """Decode some; ``b""`` when there is nothing yet, None when it needs more input."""
        if self._block is not None:
            return self._unpack_some(self._block)
        taken = self._take_chunk()
        if taken is None:
            return None
        kind, body = taken
        if kind == _IDENTIFIER:
            if body not in _NAMES:
                raise SnapshotFormatError("the frames are neither of S2 nor of Snappy")
            self._identified = True
        elif kind == _PLAIN:
            return self._checked(body[4:], int.from_bytes(body[:4], "little"))
        elif kind == _COMPRESSED:
            self._crc = int.from_bytes(body[:4], "little")
            self._block = BlockDecoder(body[4:], FRAME_BYTES_MAX)
        elif kind < _SKIPPABLE:
            raise SnapshotFormatError(f"a frame of the unknown kind {kind:#x}")
        return b""

    def drain(self) -> Iterator[bytes]:
        """``step`` until more input is needed; the data alone."""
        while (data := self.step()) is not None:
            if data:
                yield data

    def _take_chunk(self) -> tuple[int, bytes] | None:
        waiting = self._input
        if len(waiting) < 4:
            return None
        kind, size = waiting[0], int.from_bytes(waiting[1:4], "little")
        if not self._identified and kind != _IDENTIFIER:
            raise SnapshotFormatError("the data does not begin as S2 or Snappy frames do")
        if kind in (_COMPRESSED, _PLAIN) and not 4 <= size <= _BODY_MAX:
            raise SnapshotFormatError(f"a frame of {size} bytes")
        if len(waiting) < 4 + size:
            return None
        body = bytes(memoryview(waiting)[4 : 4 + size])
        del waiting[: 4 + size]
        return kind, body

    def _unpack_some(self, block: BlockDecoder) -> bytes:
        if not block.run():
            return b""
        self._block = None
        return self._checked(bytes(block.output), self._crc)

    def _checked(self, data: bytes, expected: int) -> bytes:
        if len(data) > FRAME_BYTES_MAX:
            raise SnapshotFormatError(f"a frame holds {len(data)} bytes")
        if masked(crc32c(data)) != expected:
            raise SnapshotFormatError("a frame's checksum is wrong")
        return data
