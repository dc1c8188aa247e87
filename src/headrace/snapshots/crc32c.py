"""CRC-32C (Castagnoli), the checksum of the Snappy framing format.

The standard library has CRC-32 with another polynomial alone. A table lookup per byte takes 70 ns in Python;
this takes about one. The checksum is the remainder of the data, as a polynomial over GF(2), by ``P``. Some
multiples of ``P`` have four terms: with ``x^a = x^b + x^c + 1 (mod P)`` what lies ``a`` bits ahead is moved
here by three shifts of a large integer, which Python does at the speed of memory.

Bits are reflected, as the checksum wants them: the first bit of the data has the highest power.
"""

from __future__ import annotations

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # reflected
_LARGE: Final = (90224, 666, 494)  # a is a whole number of bytes
_SMALLER: Final = ((24016, 637, 581), (6777, 484, 100))
_BLOCK: Final = _LARGE[0] // 8
_ONES: Final = 0xFFFFFFFF


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
