"""Makes NKEYs, and the tokens operators and accounts sign, as ``nsc`` would."""

from __future__ import annotations

import base64
import binascii
import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["Key", "credentials", "encode_key", "old_token", "token"]

_KINDS = {"O": 14 << 3, "A": 0, "U": 20 << 3}


class Key:
    """A key pair of an operator (O), account (A) or user (U)."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._private = Ed25519PrivateKey.generate()
        self.public = encode_key(kind, self._private.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)

    def sign_text(self, text: str) -> str:
        return base64.urlsafe_b64encode(self.sign(text.encode())).decode().rstrip("=")

    @property
    def seed(self) -> str:
        kind = _KINDS[self.kind]
        start = bytes([18 << 3 | kind >> 5, (kind & 31) << 3])
        return _text(start + self._private.private_bytes_raw())


def encode_key(kind: str, key: bytes) -> str:
    """32 bytes as the text of a public key of this kind."""
    return _text(bytes([_KINDS[kind]]) + key)


def _text(raw: bytes) -> str:
    """A key as it is written: with its checksum, CRC-16/XMODEM, the low byte first."""
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode().rstrip("=")


def token(signer: Key, about: Key, kind: str, *, exp: int = 0, **content: Any) -> str:
    """A token of version 2; ``iat=`` and ``iss=`` are meant for the claims, the rest is content."""
    iat = content.pop("iat", int(time.time()))
    claims: dict[str, Any] = {
        "jti": "x",
        "iat": iat,
        "iss": content.pop("iss", signer.public),
        "name": kind,
        "sub": about.public,
        "nats": {"type": kind, "version": 2, **content},
    }
    if exp:
        claims["exp"] = exp
    signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
    return f"{signed}.{signer.sign_text(signed)}"


def old_token(signer: Key, about: Key, kind: str, **content: Any) -> str:
    """A token of version 1: the claims alone are signed, the kind stands beside the content."""
    claims: dict[str, Any] = {
        "jti": "x",
        "iat": content.pop("iat", int(time.time())),
        "iss": signer.public,
        "name": kind,
        "sub": about.public,
        "type": kind,
    }
    if content:
        claims["nats"] = content
    part = _part(claims)
    return f"{_part({'typ': 'jwt', 'alg': 'ed25519'})}.{part}.{signer.sign_text(part)}"


def _part(document: dict[str, Any]) -> str:
    text = json.dumps(document, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def credentials(user_token: str, user: Key) -> str:
    """The text of a ``.creds`` file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
