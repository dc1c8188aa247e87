"""Signatures of NKEYs, by the library of the extra ``nkeys``."""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Final

from ...errors import ConfigurationError
from ..core.auth.authentication import USER, public_key

NONCE_BYTES: Final = 11  # as nats-server


def key_checker() -> Keys:
    """What checks signatures. Raises ConfigurationError if the extra is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "users with an nkey, and operators, need the extra nkeys: pip install 'headrace[nkeys]'"
        ) from None
    return Keys()


class Keys:
    """Implements ``KeyChecker``. Made by ``key_checker``."""

    def new_nonce(self) -> str:
        return secrets.token_urlsafe(NONCE_BYTES)

    def signed(self, key: str, signature: str, nonce: str) -> bool:
        if not nonce:
            return False
        try:
            return self.verifies(public_key(key, USER), _decode(signature), nonce.encode())
        except (ConfigurationError, binascii.Error, ValueError):
            return False  # not a key, or not base64: as good as no signature

    def verifies(self, key: bytes, signature: bytes, data: bytes) -> bool:
        """Whether this is the key's signature of the data."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


def _decode(text: str) -> bytes:
    """Base64, in either alphabet, with or without padding: clients differ."""
    text = text.rstrip("=").replace("+", "-").replace("/", "_")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
