"""NKEYs as text: what a public key says about itself, and the check of its letters.

A key is written in base32 without padding: a byte (or two) for its kind, 32 bytes of Ed25519, and a
CRC-16 of both. Signatures are checked elsewhere; nothing here is secret.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from ....errors import ConfigurationError

ACCOUNT: Final = "A"
OPERATOR: Final = "O"
USER: Final = "U"

_PREFIXES: Final = {"A": 0, "C": 2 << 3, "N": 13 << 3, "O": 14 << 3, "U": 20 << 3}
_KEY_BYTES: Final = 35  # prefix, key, checksum


def public_key(text: str, kind: str) -> bytes:
    """The 32 bytes of a public key. Raises ConfigurationError if it is not one of this kind."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES or _checksum(raw[:-2]) != raw[-2:]:
        raise ConfigurationError(f"{text[:64]!r} is not an nkey; accepted is a public key, {kind}…")
    if raw[0] != _PREFIXES[kind]:
        raise ConfigurationError(f"{text!r} is an nkey of another kind; accepted is {kind}…")
    return raw[1:-2]


def _checksum(raw: bytes) -> bytes:
    """CRC-16/XMODEM, the low byte first."""
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")
