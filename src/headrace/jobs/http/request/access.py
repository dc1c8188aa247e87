"""Finds who asks: the admin token, an API key, or neither; and writes the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final, TypeVar

from starlette.requests import Request

from ... import ids, limits
from ...access import Key
from ...errors import NOT_THE_RIGHT_ONE, DatabaseUnavailableError, JobsError
from ...runtime.runtime import Runtime
from ...service import auditing
from ...service.auditing import AuditNote
from ...store import Tx
from .endpoint import Endpoint

__all__ = [
    "authenticate",
    "bearer",
    "key_of",
    "note_refusal",
    "note_right",
    "recorded",
    "require_scope",
    "take_token",
]

T = TypeVar("T")
_LOG: Final = logging.getLogger("headrace.jobs.http")
_KEY: Final = "headrace_key"
_ENDPOINT: Final = "headrace_endpoint"
_ADMIN: Final = "headrace_admin"
_IN_BODY: Final = "headrace_token_in_body"
_TOKENS: Final = frozenset(
    {
        b"authorization",
        b"x-broker-channel-token",
        b"x-broker-consumer-token",
        b"x-broker-producer-id",
        b"x-broker-producer-token",
    }
)


def bearer(request: Request) -> str:
    """Return the text after ``Bearer``, or nothing."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


async def authenticate(runtime: Runtime, endpoint: Endpoint, request: Request) -> None:
    """Look at the API key of a request, if it has one: 401 if it is none, 403 if it may not.

    429, whatever its tokens are, after too many wrong ones from its address.
    """
    request.scope[_ENDPOINT] = endpoint
    _refuse_guesses(runtime, endpoint, request)
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


def take_token(runtime: Runtime, request: Request, field: str, token: str) -> None:
    """Count a token in the body as one of the request's: 429 as for those in its headers."""
    request.scope[_IN_BODY] = field.encode(), token.encode()
    _refuse_guesses(runtime, request.scope[_ENDPOINT], request)


def _refuse_guesses(runtime: Runtime, endpoint: Endpoint, request: Request) -> None:
    tokens = _tokens(request)
    wait_s = runtime.guesses.wait_s(_address(request), _asked(endpoint, request, tokens))
    if tokens and wait_s:
        raise JobsError(
            429,
            "too_many_wrong_tokens",
            "too many wrong tokens came from this address; it is looked at again when the minute is over",
            retry_after_s=wait_s,
        )


def key_of(request: Request) -> Key | None:
    """The API key of a request that may do what it asks for."""
    key: Key | None = request.scope.get(_KEY)
    return key


def require_scope(request: Request, scope: str, channel_id: str | None) -> None:
    """Refuse a request whose API key has not this scope for this channel, too (403)."""
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
    """Write that a change was refused, or that somebody came with a wrong token or key; so many a minute.

    Wrong tokens are counted, all of them, and by the address that they came from.
    """
    is_refused = error.status in (401, 403, 429) or error.code == NOT_THE_RIGHT_ONE
    stranger = is_refused and bool(_tokens(request))
    unknown = stranger and key_of(request) is None and not request.scope.get(_ADMIN)
    if unknown:
        runtime.metrics.add("jobs_wrong_tokens_total", token=_kind(error))
        if error.status != 429:
            runtime.guesses.note_wrong(_address(request))
    if error.status >= 500 or not (endpoint.audited or stranger):
        return
    if not runtime.refusals.take():
        runtime.metrics.add("jobs_audit_left_out_total")
        return
    entry = _entry(request, None).of(f"{error.status} {error.code}")
    if unknown:
        entry = replace(entry, who="a token or key that is not known", detail=error.field)
    try:
        await runtime.database.write(lambda tx: auditing.note(tx, entry, tx.now_us()))
    except DatabaseUnavailableError as unavailable:
        _LOG.warning(
            "%s was refused (%s), which the audit log does not tell: %s",
            entry.object,
            entry.result,
            unavailable,
        )


def _entry(request: Request, detail: str | None) -> AuditNote:
    endpoint: Endpoint = request.scope[_ENDPOINT]
    key = key_of(request)
    return AuditNote(
        who=_who(request, key),
        key_id=None if key is None else key.key_id,
        action=f"{endpoint.method} {endpoint.path}",
        object=request.url.path,
        channel_id=request.path_params.get("channelId"),
        address=_address(request),
        request_id=request.scope.get("headrace_request_id", ""),
        detail=detail,
    )


def note_right(runtime: Runtime, endpoint: Endpoint, request: Request) -> None:
    """Note that the tokens of a request, if it has any, let it do what it asked for."""
    if tokens := _tokens(request):
        runtime.guesses.note_right(_asked(endpoint, request, tokens))


def _tokens(request: Request) -> list[tuple[bytes, bytes]]:
    found = [(name, value) for name, value in request.scope["headers"] if name in _TOKENS]
    in_body: tuple[bytes, bytes] | None = request.scope.get(_IN_BODY)
    return found if in_body is None else [*found, in_body]


def _asked(endpoint: Endpoint, request: Request, tokens: list[tuple[bytes, bytes]]) -> Hashable:
    """Identify what was asked for, and its tokens; what a route does not look at proves nothing elsewhere."""
    path = request.path_params
    where = path.get("channelId"), path.get("consumerId")
    return endpoint.method, endpoint.path, where, tuple(tokens)


def _address(request: Request) -> str:
    client = request.client
    return "" if client is None else client.host[: limits.ID_CHARS_MAX]


def _kind(error: JobsError) -> str:
    """Whose token was wrong."""
    if error.status == 429:
        return "unseen"
    kinds = {"Authorization": "key" if error.code == "unknown_key" else "admin"}
    kinds |= {"X-Broker-Channel-Token": "channel", "X-Broker-Consumer-Token": "consumer"}
    kinds |= {"consumerId": "consumer", "requeue": "consumer"}
    return kinds.get(error.field or "", "producer")


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
