"""The bodies of requests about API keys and the audit log, and of their answers."""

from __future__ import annotations

import msgspec

__all__ = ["AuditEntries", "AuditEntry", "KeyBody", "KeyMade", "KeyShape", "Keys"]


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    scopes: list[str]
    channels: tuple[str, ...] = ("*",)
    expires_in_seconds: float | None = None


class KeyShape(msgspec.Struct):
    id: str
    name: str
    scopes: list[str]
    channels: list[str]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class KeyMade(KeyShape):
    key: str


class Keys(msgspec.Struct):
    keys: list[KeyShape]
    pages: dict[str, str]


class AuditEntry(msgspec.Struct):
    at: str
    who: str
    key: str | None
    action: str
    object: str
    channel: str | None
    address: str
    request_id: str
    result: str
    detail: str | None


class AuditEntries(msgspec.Struct):
    entries: list[AuditEntry]
    pages: dict[str, str]
