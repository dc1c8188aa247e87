"""Decoding one block of S2, which is Snappy's with two additions: offsets that repeat, and larger blocks.

A block is its decoded size and then elements. An element is either bytes to take as they are, or says
how many bytes to repeat from how far back. An offset of zero in the shortest form means the offset of
the last copy again.
"""

from __future__ import annotations

from typing import Final

from .contents import SnapshotFormatError

ELEMENTS_PER_RUN: Final = 4000  # about a millisecond
_LITERAL, _COPY_1, _COPY_2 = range(3)
_LONG_LITERAL: Final = 60


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
