"""HighwayHash with 64 bits, the checksum of nats-server's records and metadata.

Four lanes of four 64-bit words take in 32 bytes at a time. In Python that is some microseconds, so
whoever has many records to check counts ``packets``.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from typing import Final

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
