"""NATS's signed tokens: JSON between dots, signed with NKEYs by operators and accounts.

    base64url({"typ":"JWT","alg":"ed25519-nkey"}) . base64url(claims) . base64url(signature of both)

A token says who signed it (``iss``), about whom it speaks (``sub``), when it was made and ends
(``iat``, ``exp``, seconds), and its content under ``nats``. Version 2 of the claims is read, and version 1
(``"alg":"ed25519"``), where the signature is of the claims alone and ``type`` stands beside ``nats``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ....errors import ConfigurationError
from .jwt_content import TokenError
from .nkeys import ACCOUNT, OPERATOR, USER, public_key

TOKEN_BYTES_MAX: Final = 1 << 20
_ALGORITHM: Final = "ed25519-nkey"
_ALGORITHM_1: Final = "ed25519"
_VERSION: Final = 2
_KINDS: Final = {"operator": OPERATOR, "account": ACCOUNT, "user": USER}

Verify = Callable[[bytes, bytes, bytes], bool]
"""``verify(public key, signature, data)``"""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says; ``nats`` is its content, by NATS's own names."""

    iss: str
    sub: str
    jti: str | None = ""
    aud: str | None = ""
    iat: int = 0
    exp: int = 0
    nbf: int = 0
    name: str | None = ""
    type: str = ""
    """Of version 1; later ones say it in ``nats``."""
    nats: dict[str, Any] = {}

    @property
    def kind(self) -> str:
        return str(self.nats.get("type", ""))

    def check_time(self, now_s: float) -> None:
        """Raise TokenError outside the time it holds for."""
        if self.exp and self.exp <= now_s:
            raise TokenError("it has expired")
        if self.nbf and self.nbf > now_s:
            raise TokenError("it does not hold yet")


class _Header(msgspec.Struct, frozen=True):
    typ: str = ""
    alg: str = ""


def decode_token(token: str, kind: str, verify: Verify) -> Claims:
    """The claims of a token of this kind, signed by the key it names. Raises TokenError.

    Whether that key may sign it is for the caller to say.
    """
    from .jwt_content import check_content  # who has no tokens starts without it

    if len(token) > TOKEN_BYTES_MAX:
        raise TokenError("it is longer than any token")
    parts = token.strip().split(".")
    if len(parts) != 3:
        raise TokenError("it does not have three parts")
    try:
        header = msgspec.json.decode(_decode(parts[0]), type=_Header)
        claims = msgspec.json.decode(_decode(parts[1]), type=Claims)
        signature = _decode(parts[2])
    except msgspec.ValidationError as error:
        raise TokenError(f"a field is not of its type: {error}") from None
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
        raise TokenError("it is not made of base64 and JSON") from None
    signed = f"{parts[0]}.{parts[1]}"
    if header.alg == _ALGORITHM_1:
        signed, claims = parts[1], _of_version_1(claims)
    elif header.alg != _ALGORITHM:
        raise TokenError(f"its algorithm is not {_ALGORITHM}")
    claims = msgspec.structs.replace(claims, nats=check_content(claims.nats))
    if claims.kind != kind or claims.nats.get("version") != _VERSION:
        raise TokenError(f"it is not about {kind}s, or not of version {_VERSION}")
    signer = "A" if kind == "user" else "O"
    try:
        public_key(claims.sub, _KINDS[kind])
        key = public_key(claims.iss, signer)
    except ConfigurationError as error:
        raise TokenError(str(error)) from None
    if not verify(key, signature, signed.encode()):
        raise TokenError("its signature is wrong")
    return claims


def _of_version_1(claims: Claims) -> Claims:
    """Claims of version 1 in the words of version 2."""
    content = {**claims.nats, "type": claims.type, "version": _VERSION}
    if isinstance(content.get("src"), str):
        content["src"] = [network.strip() for network in content["src"].split(",") if network]
    return msgspec.structs.replace(claims, nats=content)


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
