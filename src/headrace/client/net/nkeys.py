"""NKEYs: the Ed25519 keys NATS users prove themselves with, and the credentials files that carry them.

The signature, once per connection over the server's nonce, is made by the ``cryptography`` package (extra
``headrace[nkeys]``) where that is installed. Without it by plain Python (``PlainSigner``), which takes a few
milliseconds and is not hardened against somebody who measures this process from within the same machine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...errors import ConfigurationError

# Ed25519 (RFC 8032). The curve: -x² + y² = 1 + d·x²·y² modulo p, its base point and the order of that.
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


_SEED_PREFIX: Final = 18 << 3  # 'S'
_USER_PREFIX: Final = 20 << 3  # 'U'


class _FastSigner:
    """The ``cryptography`` package's: quick, and in a time that tells nothing of the key."""

    __slots__ = ("public_key_bytes", "sign")

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key_bytes = key.public_key().public_bytes_raw()
        self.sign = key.sign


def _signer(seed: bytes) -> _FastSigner | PlainSigner:
    try:
        return _FastSigner(seed)
    except ImportError:
        return PlainSigner(seed)


class KeyPair:
    """A user's key pair, made from its seed (``SU…``). The seed appears in no ``repr`` and no error.

    Raises:
        ConfigurationError: it is not a user's seed.
    """

    __slots__ = ("_signer", "public_key", "public_key_bytes")

    def __init__(self, seed: str) -> None:
        self._signer = _signer(_raw_seed(seed))
        self.public_key_bytes = self._signer.public_key_bytes
        self.public_key = _encode(bytes([_USER_PREFIX]) + self.public_key_bytes)

    def __repr__(self) -> str:
        return f"<KeyPair {self.public_key}>"

    def sign(self, data: bytes) -> bytes:
        """The Ed25519 signature of ``data``, 64 bytes."""
        return self._signer.sign(data)

    def sign_nonce(self, nonce: str) -> str:
        """The signature of a server's nonce, as CONNECT carries it."""
        return base64.urlsafe_b64encode(self.sign(nonce.encode())).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """What a credentials file holds: a user's JWT and the key that proves it."""

    jwt: str = field(repr=False)
    key: KeyPair


_BLOCK: Final = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")


def read_credentials(path: str | Path) -> UserCredentials:
    """Read a credentials file (``.creds``) with its two blocks.

    Raises ConfigurationError: it cannot be read, or one of the blocks is not there or not right.
    """
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigurationError(f"credentials file {str(path)!r}: {reason}") from None
    blocks = dict(_BLOCK.findall(text))
    for name in ("NATS USER JWT", "USER NKEY SEED"):
        if name not in blocks:
            raise ConfigurationError(f"credentials file {str(path)!r} has no block {name!r}")
    return UserCredentials(blocks["NATS USER JWT"], KeyPair(blocks["USER NKEY SEED"]))


def _raw_seed(seed: str) -> bytes:
    """The 32 bytes of a user's seed."""
    text = seed.strip()
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raise ConfigurationError(
            "the NKEY seed is not base 32; accepted is a user's, SU…"
        ) from None
    if len(raw) != 36 or _crc16(raw[:-2]) != int.from_bytes(raw[-2:], "little"):
        raise ConfigurationError("the NKEY seed is mistyped or cut: its checksum does not fit")
    kind = (raw[0] & 7) << 5 | raw[1] >> 3
    if raw[0] & 0xF8 != _SEED_PREFIX or kind != _USER_PREFIX:
        raise ConfigurationError("the NKEY is not a user's seed; those begin with SU")
    return raw[2:-2]


def _encode(raw: bytes) -> str:
    """Base 32 with NATS' checksum."""
    checked = raw + _crc16(raw).to_bytes(2, "little")
    return base64.b32encode(checked).rstrip(b"=").decode()


def _crc16(data: bytes) -> int:
    """CRC-16/XMODEM."""
    return binascii.crc_hqx(data, 0)
