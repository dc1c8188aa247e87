"""Ed25519 signatures (RFC 8032) in plain Python, for when ``cryptography`` is not installed.

A few milliseconds each, which is nothing for one per connection. The time taken depends on the key: not
hardened against somebody who measures this process from within the same machine.
"""

from __future__ import annotations

import hashlib
from typing import Final

# The curve: -x² + y² = 1 + d·x²·y² modulo p, its base point and the order of that.
_P: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, -1, _P) % _P
_L: Final = 2**252 + 27742317777372353535851937790883648493
_BY: Final = 4 * pow(5, -1, _P) % _P
_BX: Final = 15112221349535400772501151409588531511454012693041857206046113283949847762202
_BASE: Final = (_BX, _BY, 1, _BX * _BY % _P)

_Point = tuple[int, int, int, int]  # x = X/Z, y = Y/Z, x·y = T/Z


def _add(a: _Point, b: _Point) -> _Point:
    x1, y1, z1, t1 = a
    x2, y2, z2, t2 = b
    e = (y1 - x1) * (y2 - x2) % _P
    f = (y1 + x1) * (y2 + x2) % _P
    g = 2 * t1 * t2 * _D % _P
    h = 2 * z1 * z2 % _P
    k, m, n, o = f - e, h - g, h + g, f + e
    return (k * m % _P, n * o % _P, m * n % _P, k * o % _P)


def _multiply(scalar: int, point: _Point) -> _Point:
    result: _Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _compress(point: _Point) -> bytes:
    x, y, z, _ = point
    inverse = pow(z, -1, _P)
    x, y = x * inverse % _P, y * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _hash(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little")


class PlainSigner:
    """Signs with the key made from 32 bytes."""

    __slots__ = ("_prefix", "_scalar", "public_key_bytes")

    def __init__(self, seed: bytes) -> None:
        digest = hashlib.sha512(seed).digest()
        scalar = int.from_bytes(digest[:32], "little")
        self._scalar = scalar & ~7 & ((1 << 254) - 1) | (1 << 254)
        self._prefix = digest[32:]
        self.public_key_bytes = _compress(_multiply(self._scalar, _BASE))

    def sign(self, data: bytes) -> bytes:
        """The signature of ``data``, 64 bytes."""
        r = _hash(self._prefix, data) % _L
        point = _compress(_multiply(r, _BASE))
        k = _hash(point, self.public_key_bytes, data) % _L
        return point + ((r + k * self._scalar) % _L).to_bytes(32, "little")
