"""API keys, made, listed and revoked; and the audit log."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import bad_request
from ...models import rfc3339
from ...runtime.runtime import Runtime
from ...service.definitions import keys
from ...store import Row
from ..request.access import recorded
from ..request.endpoint import CURSORS, Endpoint, Parameter, reply
from ..request.incoming import list_links, page_of, read_json, require_admin, seconds_between

__all__ = ["ENDPOINTS"]


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


async def make_key(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, KeyBody)
    valid_s = body.expires_in_seconds
    if valid_s is not None:
        seconds_between(valid_s, limits.KEY_S_MIN, limits.KEY_S_MAX, "expires_in_seconds")
    key_id, key = ids.new_key()
    row = await runtime.database.write(
        recorded(
            request,
            lambda tx: keys.insert_key(
                tx,
                key_id,
                key,
                name=body.name,
                scopes=body.scopes,
                channels=body.channels,
                valid_s=valid_s,
                now=tx.now_us(),
            ),
            f"key {key_id} for {' '.join(body.scopes)} in {' '.join(body.channels)}",
        )
    )
    return reply(KeyMade(**_shown(row), key=key), 201)


async def list_keys(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    found = await runtime.database.read(lambda tx: page_of(tx, runtime, request, "keys", "keys"))
    shown = [KeyShape(**_shown(row)) for row in found.rows]
    return reply(Keys(shown, list_links(request.url.path, found)))


async def revoke_key(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    key_id = request.path_params["keyId"]
    await runtime.database.write(
        recorded(request, lambda tx: keys.revoke_key(tx, key_id, tx.now_us()))
    )
    runtime.keys.forget(key_id)
    return Response(status_code=204)


def _shown(row: Row) -> dict[str, Any]:
    def at(column: str) -> str | None:
        return None if row[column] is None else rfc3339(row[column])

    key = keys.key_of(row)
    return {
        "id": key.key_id,
        "name": key.name,
        "scopes": list(key.scopes),
        "channels": list(key.channels),
        "created_at": rfc3339(row["created_us"]),
        "expires_at": at("expires_us"),
        "revoked_at": at("revoked_us"),
        "last_used_at": at("last_used_us"),
    }


async def list_audit(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    given = {name: text for name in ("key", "channel") if (text := request.query_params.get(name))}
    if len(given) > 1:
        raise bad_request("two_filters", "a key, or a channel, but not both", "channel")
    for name, value in given.items():
        ids.check_id(value, name)
    query, values = "audit", {}
    for name, value in given.items():
        query, values = f"audit_of_{name}", {f"{name}_id": value}
    scope = f"{query} {values}"
    found = await runtime.database.read(
        lambda tx: page_of(tx, runtime, request, query, scope, **values)
    )
    shown = [
        AuditEntry(
            at=rfc3339(row["at_us"]),
            who=row["who"],
            key=row["key_id"],
            action=row["action"],
            object=row["object"],
            channel=row["channel_id"],
            address=row["address"],
            request_id=row["request_id"],
            result=row["result"],
            detail=row["detail"],
        )
        for row in found.rows
    ]
    return reply(AuditEntries(shown, list_links(request.url.path, found, **given)))


ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/v2/keys",
        handler=make_key,
        summary="Make an API key with scopes, for channels; it is shown once",
        body=KeyBody,
        answers={201: KeyMade},
        tag="access",
        admin=True,
        audited=True,
        errors=(409,),
    ),
    Endpoint(
        method="GET",
        path="/v2/keys",
        handler=list_keys,
        summary="The API keys, newest first; none is shown itself",
        answers={200: Keys},
        parameters=CURSORS,
        tag="access",
        admin=True,
        scopes=("admin",),
    ),
    Endpoint(
        method="DELETE",
        path="/v2/key/{keyId}",
        handler=revoke_key,
        summary="Revoke an API key",
        answers={204: None},
        tag="access",
        admin=True,
        audited=True,
    ),
    Endpoint(
        method="GET",
        path="/v2/audit",
        handler=list_audit,
        summary="Who changed what, from where, with which result; newest first",
        answers={200: AuditEntries},
        parameters=(
            Parameter("key", "what the API key of this id did"),
            Parameter("channel", "what was done in this channel"),
            *CURSORS,
        ),
        tag="access",
        admin=True,
        scopes=("admin",),
    ),
)
