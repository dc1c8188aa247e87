"""Integers of variable length, seven bits a byte, as protocol buffers and Go write them."""

from __future__ import annotations

from typing import Final

from .contents import SnapshotFormatError

_BYTES_MAX: Final = 10
_SMALL: Final = tuple(bytes((value,)) for value in range(128))


def uvarint(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """A number that may be negative."""
    return uvarint(value << 1 if value >= 0 else ~value << 1 | 1)


def read_uvarint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number at this place, and where the next one begins.

    Raises IndexError where the data ends within it, SnapshotFormatError where it is too long.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift, first = byte & 0x7F, 7, at
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if at - first >= _BYTES_MAX:
            raise SnapshotFormatError("a number is too long")


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """As ``read_uvarint``, for one that may be negative."""
    value, at = read_uvarint(data, at)
    return (~(value >> 1) if value & 1 else value >> 1), at
