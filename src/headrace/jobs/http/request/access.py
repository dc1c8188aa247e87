"""Who asks: the admin token, an API key, or neither; and what of it goes into the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.requests import Request

from ... import ids, limits
from ...access import Key
from ...errors import DatabaseUnavailableError, JobsError
from ...runtime.runtime import Runtime
from ...service import auditing
from ...service.auditing import Entry
from ...store import Tx
from .endpoint import Endpoint

__all__ = ["authenticate", "bearer", "key_of", "note_refusal", "recorded", "require_scope"]

T = TypeVar("T")
_LOG: Final = logging.getLogger("headrace.jobs.http")
_KEY: Final = "headrace_key"
_ENDPOINT: Final = "headrace_endpoint"
_ADMIN: Final = "headrace_admin"


def bearer(request: Request) -> str:
    """What the request says to be: the text after ``Bearer``, or nothing."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


async def authenticate(runtime: Runtime, endpoint: Endpoint, request: Request) -> None:
    """Look at the API key of a request, if it has one: 401 if it is none, 403 if it may not."""
    request.scope[_ENDPOINT] = endpoint
    given = bearer(request)
    if not given or not endpoint.needed:
        return
    if runtime.admin_token is not None and ids.tokens_equal(runtime.admin_token, given):
        request.scope[_ADMIN] = True
        return
    if ids.key_id_of(given) is None:
        return
    key = await runtime.keys.find(given)
    request.scope[_KEY] = key  # refused or not, it is told who it was
    key.check(endpoint.needed, request.path_params.get("channelId"))


def key_of(request: Request) -> Key | None:
    """The API key of a request that may do what it asks for."""
    key: Key | None = request.scope.get(_KEY)
    return key


def require_scope(request: Request, scope: str, channel_id: str | None) -> None:
    """403 for an API key that has not this scope for this channel, too."""
    key = key_of(request)
    if key is not None:
        key.check((scope,), channel_id)


def recorded(
    request: Request, work: Callable[[Tx], T], detail: str | None = None
) -> Callable[[Tx], T]:
    """``work`` and its line in the audit log, in one transaction."""
    entry = _entry(request, detail)

    def write(tx: Tx) -> T:
        result = work(tx)
        auditing.note(tx, entry, tx.now_us())
        return result

    return write


async def note_refusal(
    runtime: Runtime, endpoint: Endpoint, request: Request, error: JobsError
) -> None:
    """Write that a change was refused, or that somebody came with a wrong token or key; so many a minute."""
    stranger = error.status in (401, 403) and "authorization" in request.headers
    if error.status >= 500 or not (endpoint.audited or stranger):
        return
    if not runtime.refusals.take():
        runtime.metrics.add("jobs_audit_left_out_total")
        return
    entry = _entry(request, None).of(f"{error.status} {error.code}")
    try:
        await runtime.database.write(lambda tx: auditing.note(tx, entry, tx.now_us()))
    except DatabaseUnavailableError as unavailable:
        _LOG.warning(
            "%s was refused (%s), which the audit log does not tell: %s",
            entry.object,
            entry.result,
            unavailable,
        )


def _entry(request: Request, detail: str | None) -> Entry:
    endpoint: Endpoint = request.scope[_ENDPOINT]
    key = key_of(request)
    client = request.client
    return Entry(
        who=_who(request, key),
        key_id=None if key is None else key.key_id,
        action=f"{endpoint.method} {endpoint.path}",
        object=request.url.path,
        channel_id=request.path_params.get("channelId"),
        address="" if client is None else client.host[: limits.ID_CHARS_MAX],
        request_id=request.scope.get("headrace_request_id", ""),
        detail=detail,
    )


def _who(request: Request, key: Key | None) -> str:
    if key is not None:
        return f"key {key.key_id} {key.name}".strip()
    if request.scope.get(_ADMIN):
        return "admin token"
    if bearer(request):
        return "a token or key that is not known"
    named = ("x-broker-producer-token", "x-broker-consumer-token", "x-broker-channel-token")
    for name in named:
        if name in request.headers:
            return f"token of a {name.split('-')[2]}"
    return "no token"
