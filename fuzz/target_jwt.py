"""Tokens: an odd one lets nobody in and ends nothing, and an odd account is refused with a sentence."""

from __future__ import annotations

import base64
import json
import random

from headrace.broker.core.auth.jwt_auth import TokenTrust, TrustedTokens
from headrace.broker.core.peer import ConnectOptions, Peer
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from mutation import Target
from token_forge import encode_key

OPERATOR, ACCOUNT, USER = (encode_key(kind, kind.encode() * 32) for kind in "OAU")
CLOCK = ManualClock()
PEER = Peer("127.0.0.1", 4222)
PEER.nonce = "nonce"


def claims(kind: str, issuer: str, about: str, **content: object) -> bytes:
    document = {"iss": issuer, "sub": about, "iat": 1, "name": kind}
    return json.dumps({**document, "nats": {"type": kind, "version": 2, **content}}).encode()


PERMISSIONS = {
    "pub": {"allow": ["a.>"], "deny": ["b"]},
    "sub": {"allow": ["c q"]},
    "resp": {"max": 1},
}
ACCOUNT_CONTENT = {
    "limits": {"subs": -1, "conn": 5, "mem_storage": 100, "disk_storage": -1, "streams": 2},
    "exports": [{"name": "e", "subject": "x.>", "type": "service", "response_type": "Stream"}],
    "imports": [{"subject": "y", "account": ACCOUNT, "to": "z", "type": "stream"}],
    "signing_keys": [ACCOUNT, {"kind": "user_scope", "key": ACCOUNT, "template": PERMISSIONS}],
    "revocations": {USER: 5, "*": 1},
    "default_permissions": PERMISSIONS,
}
CORPUS = [
    claims("operator", OPERATOR, OPERATOR, signing_keys=[OPERATOR]),
    claims("account", OPERATOR, ACCOUNT, **ACCOUNT_CONTENT),
    claims("user", ACCOUNT, USER, **PERMISSIONS, subs=-1, data=-1, payload=-1, bearer_token=True),
    claims(
        "user", ACCOUNT, USER, src=["127.0.0.0/8"], times=[{"start": "01:00:00", "end": "02:00:00"}]
    ),
    claims("user", ACCOUNT, USER, issuer_account=ACCOUNT, allowed_connection_types=["STANDARD"]),
]
TOKENS = [
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"1",
        b"-1",
        b"1e999",
        b'"true"',
        b"9" * 25,
        b'"',
        b",",
    ),
    *(
        b'"subs"',
        b'"nats"',
        b'"version"',
        b'"type"',
        b'"limits"',
        b'"exp"',
        b"[" * 300,
        OPERATOR.encode(),
    ),
]


class AnyKey:
    """Every signature is good: what is fuzzed is what comes after."""

    def new_nonce(self) -> str:
        return "nonce"

    def signed(self, key: str, signature: str, nonce: str) -> bool:
        return True

    def verifies(self, key: bytes, signature: bytes, data: bytes) -> bool:
        return True


def token(data: bytes) -> str:
    head = base64.urlsafe_b64encode(b'{"typ":"JWT","alg":"ed25519-nkey"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(data).decode().rstrip("=")
    return f"{head}.{body}.AAAA"


def trusting(operator: bytes, account: bytes) -> TrustedTokens:
    trust = TokenTrust((token(operator),), {ACCOUNT: token(account)})
    return TrustedTokens(trust, AnyKey(), AnyKey().verifies, CLOCK)


TRUSTED = trusting(CORPUS[0], CORPUS[1])


def check(data: bytes, rng: random.Random) -> None:
    """Raise what a token makes its reader raise."""
    TRUSTED.authenticate(ConnectOptions(jwt=token(data), sig="AAAA"), PEER)
    for operator, account in ((data, CORPUS[1]), (CORPUS[0], data)):
        try:
            trusting(operator, account).authenticate(ConnectOptions(jwt=token(CORPUS[2])), PEER)
        except ConfigurationError as error:
            assert str(error), "a refusal without a word"


TARGET = Target("jwt", CORPUS, TOKENS, check, joined_max=1)
