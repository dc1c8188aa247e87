"""What tokens of accounts and users say, made of what was typed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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


def account(limits: Mapping[str, int | None], *, jetstream: bool) -> dict[str, Any]:
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


def user(
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
