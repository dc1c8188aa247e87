"""Tokens as nats-server reads them: JSON claims, signed by a key. Pure; the time is handed in."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from ...documents import DocumentError, read_json
from ..shared.errors import Failure
from .keys import Key, is_signed_by

_HEAD: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
VERSION: Final = 2


def signed(
    signer: Key,
    subject: str,
    name: str,
    kind: str,
    content: Mapping[str, Any],
    now: int,
    *,
    expires: int = 0,
) -> str:
    """A token.

    Args:
        signer: whose signature it has.
        subject: the public key it is about.
        name: for people.
        kind: ``operator``, ``account`` or ``user``.
        content: what it says.
        now, expires: seconds since 1970; 0: it does not end.
    """
    claims: dict[str, Any] = {"iat": now, "iss": signer.public, "name": name, "sub": subject}
    if expires:
        claims["exp"] = expires
    claims["nats"] = {**content, "type": kind, "version": VERSION}
    identity = hashlib.sha256(msgspec.json.encode(claims)).digest()
    claims["jti"] = base64.b32encode(identity).decode().rstrip("=")
    text = f"{_part(_HEAD)}.{_part(claims)}"
    return f"{text}.{_letters(signer.sign(text.encode()))}"


def read(text: str, issuers: Collection[str], where: str) -> dict[str, Any]:
    """The claims of a token that one of ``issuers`` signed; none: whoever says so. Raises Failure."""
    front, _, signature = text.strip().rpartition(".")
    try:
        claims = read_json(_bytes(front.partition(".")[2]))
        proof = _bytes(signature)
    except (ValueError, binascii.Error, DocumentError):
        raise Failure(f"{where}: it is no token") from None
    if not isinstance(claims, dict) or not isinstance(claims.get("nats"), dict):
        raise Failure(f"{where}: it is no token of NATS")
    issuer = str(claims.get("iss", ""))
    if issuers and issuer not in issuers:
        raise Failure(f"{where}: it is signed by {issuer}, which is none of {', '.join(issuers)}")
    if not is_signed_by(issuer, front.encode(), proof):
        raise Failure(f"{where}: its signature is wrong; it was changed, or cut")
    return claims


def credentials(token: str, user: Key) -> str:
    """The text of a credentials file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "The seed below is a secret: who has it is this user.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def _part(document: Mapping[str, Any]) -> str:
    return _letters(msgspec.json.encode(document))


def _letters(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(letters: str) -> bytes:
    return base64.urlsafe_b64decode(letters + "=" * (-len(letters) % 4))
