"""Key pairs, the tokens they sign, and what tokens of accounts and users say. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ...documents import DocumentError, read_json
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


NO_LIMIT: Final = -1
NONE: Final = 0

LIMITS: Final = {
    "storage": "disk_storage",
    "memory": "mem_storage",
    "streams": "streams",
    "consumers": "consumer",
    "connections": "conn",
    "subscriptions": "subs",
    "payload": "payload",
}
"""The limits of an account: as they are typed, and as a token calls them."""

JETSTREAM: Final = ("disk_storage", "mem_storage", "streams", "consumer")


def account_claims(limits: Mapping[str, int | None], *, jetstream: bool) -> dict[str, Any]:
    """The content of an account's token; a limit that is None is none."""
    found: dict[str, Any] = {
        **dict.fromkeys(
            ("subs", "data", "payload", "imports", "exports", "conn", "leaf"), NO_LIMIT
        ),
        "wildcards": True,
        **dict.fromkeys(JETSTREAM, NO_LIMIT if jetstream else NONE),
    }
    return {"limits": limited(found, limits), "default_permissions": {"pub": {}, "sub": {}}}


def limited(limits: Mapping[str, Any], changes: Mapping[str, int | None]) -> dict[str, Any]:
    """Limits with those that are named changed."""
    named = {LIMITS[name]: value for name, value in changes.items() if value is not None}
    return {**limits, **named}


def user_claims(
    issuer_account: str, permissions: Mapping[str, Sequence[str]], *, bearer: bool
) -> dict[str, Any]:
    """The content of a user's token.

    Args:
        issuer_account: whose user it is, where a signing key of it signs; else "".
        permissions: subjects by ``pub_allow``, ``pub_deny``, ``sub_allow``, ``sub_deny``.
        bearer: whether the token alone is enough, without the key.
    """
    found: dict[str, Any] = dict.fromkeys(("subs", "data", "payload"), NO_LIMIT)
    for name in ("pub", "sub"):
        rules = {way: list(permissions.get(f"{name}_{way}", ())) for way in ("allow", "deny")}
        found[name] = {way: subjects for way, subjects in rules.items() if subjects}
    if issuer_account:
        found["issuer_account"] = issuer_account
    if bearer:
        found["bearer_token"] = True
    return found
