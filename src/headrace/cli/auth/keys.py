"""NKEYs as key pairs: made of a seed, written, and used to sign. Randomness is handed in."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ..shared.errors import Failure

KINDS: Final = {"operator": "O", "account": "A", "user": "U"}
_PREFIXES: Final = {"O": 14 << 3, "A": 0, "U": 20 << 3}
_SEED: Final = 18 << 3
_SEED_BYTES: Final = 36  # two for the kind, the secret, two of checksum
_PUBLIC_BYTES: Final = 35


class Key:
    """A key pair. The seed appears in no ``repr`` and no error.

    Args:
        kind: "O", "A" or "U": of an operator, an account or a user.
        secret: 32 random bytes.
    """

    def __init__(self, kind: str, secret: bytes) -> None:
        self.kind = kind
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        prefix = bytes([_PREFIXES[kind]])
        self.public = _text(prefix + self._private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<Key {self.public}>"

    @property
    def seed(self) -> str:
        """The secret as it is written: S, the kind, and letters."""
        kind = _PREFIXES[self.kind]
        start = bytes([_SEED | kind >> 5, (kind & 31) << 3])
        return _text(start + self._private.private_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """The signature, 64 bytes."""
        return self._private.sign(data)


def read_seed(text: str, kind: str, where: str) -> Key:
    """The key pair of a seed. Raises Failure, which does not show it."""
    raw = _raw(text.strip(), _SEED_BYTES)
    prefix = _PREFIXES[kind]
    if raw is None or raw[0] != _SEED | prefix >> 5 or raw[1] != (prefix & 31) << 3:
        raise Failure(f"{where}: it is no seed of this kind; accepted is S{kind}…")
    return Key(kind, raw[2:])


def is_signed_by(public: str, data: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key signed it."""
    raw = _raw(public, _PUBLIC_BYTES)
    if raw is None:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(raw[1:]).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _text(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _raw(text: str, length: int) -> bytes | None:
    """Without its checksum; None: it is mistyped."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    if len(raw) != length or binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:]:
        return None
    return raw[:-2]
