"""Reading requests: bodies with a limit, forms, JSON, tokens, numbers. Every error names its field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request

from ... import ids, limits
from ...errors import JobsError, bad_request, forbidden
from ...runtime.runtime import Runtime
from ...service.definitions.definitions import Precondition
from ...service.page_reads import Page, Paging, page
from ...store import Tx
from .access import bearer, key_of

__all__ = [
    "consumer_tokens",
    "flag",
    "header",
    "is_admin",
    "list_links",
    "moment_us",
    "nested_too_deeply",
    "number_between",
    "page_of",
    "paging",
    "precondition",
    "producer_tokens",
    "read_body",
    "read_form",
    "read_json",
    "require_admin",
    "require_reader",
    "seconds_between",
]


T = TypeVar("T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHERE: Final = re.compile(r" - at `(.+)`$")


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The body; 413 as soon as it is longer than ``bytes_max``, 415 for one with a content coding."""
    coding = request.headers.get("content-encoding", "")
    if coding.strip().lower() not in {"", "identity"}:
        raise JobsError(
            415,
            "content_encoding",
            f"a body is accepted as it is, without Content-Encoding; this one has {coding[:80]!r}. A payload "
            "that is to stay compressed has a Content-Type that says so, such as application/gzip",
            "Content-Encoding",
        )
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > bytes_max:
        raise _too_large(bytes_max)
    chunks, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise bad_request("body_incomplete", "the body ended before it was complete", "body")
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(bytes_max: int) -> JobsError:
    return JobsError(413, "payload_too_large", f"at most {bytes_max} bytes are accepted", "body")


async def read_form(request: Request, fields: Sequence[str]) -> dict[str, str]:
    """A form body; 415 for another media type, 400 for a field given twice or not among ``fields``."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise JobsError(
            415,
            "unsupported_media_type",
            "Media type not supported: application/x-www-form-urlencoded is accepted",
            "Content-Type",
        )
    raw = await read_body(request, limits.DOCUMENT_BYTES_MAX)
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=64)
    except ValueError as error:
        raise bad_request("malformed_form", f"the form cannot be read: {error}", "body") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        twice = next(name for name, _ in pairs if sum(other == name for other, _ in pairs) > 1)
        raise bad_request("field_twice", "a field may be given once", twice)
    if unknown := form.keys() - set(fields):
        raise bad_request("unknown_field", f"accepted are {', '.join(fields)}", min(unknown))
    return form


async def read_json(
    request: Request,
    kind: type[T],
    *,
    bytes_max: int = limits.DOCUMENT_BYTES_MAX,
    may_be_empty: bool = False,
) -> T:
    """A JSON body of the given shape; 400 with the path of the error in it.

    ``may_be_empty``: no body is one without any field.
    """
    raw = await read_body(request, bytes_max)
    if may_be_empty and not raw:
        raw = b"{}"
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        sentence = str(error)
        where = _WHERE.search(sentence)
        path = where[1].removeprefix("$.") if where else "body"
        raise bad_request("invalid_body", _WHERE.sub("", sentence), path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request("malformed_json", f"the body is not JSON: {error}", "body") from None
    except RecursionError:
        raise nested_too_deeply() from None


def nested_too_deeply() -> JobsError:
    """Refuse JSON that is nested more deeply than can be read (400)."""
    return bad_request("malformed_json", "the JSON is nested too deeply", "body")


def header(request: Request, name: str) -> str:
    """A header, or an empty string."""
    return request.headers.get(name, "")


def number_between(text: str | None, default: int, low: int, high: int | None, field: str) -> int:
    """A decimal number; 400 for anything else or if it is out of range."""
    if text is None:
        return default
    if (
        not re.fullmatch(r"[0-9]{1,18}", text)
        or int(text) < low
        or (high is not None and int(text) > high)
    ):
        range_text = f"{low} or more" if high is None else f"{low} to {high}"
        raise bad_request("invalid_number", f"a whole number is accepted, {range_text}", field)
    return int(text)


def flag(request: Request, name: str, *, default: bool) -> bool:
    """A query parameter that is ``true`` or ``false``; 400 for another word."""
    text = request.query_params.get(name)
    if text not in {None, "true", "false"}:
        raise bad_request("invalid_flag", "true or false is accepted", name)
    return default if text is None else text == "true"


def seconds_between(value: float, low: float, high: float, field: str) -> float:
    """A duration; 400 out of range (also for infinity and not-a-number)."""
    if not low <= value <= high:
        raise bad_request("invalid_duration", f"{low:g} to {high:g} seconds are accepted", field)
    return value


def moment_us(text: str, field: str, code: str = "invalid_time") -> int:
    """A time, microseconds since 1970; 400 for one without a zone, or that is none."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and "T" in text.upper():
            # Not by a float, which has no microseconds for a far year; a zone may lead out of all years.
            return (at.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        pass
    raise bad_request(
        code,
        "a time like 2026-01-31T23:59:59Z (RFC 3339, with its zone, years 1 to 9999) is accepted",
        field,
    )


def precondition(request: Request) -> Precondition:
    """The version that the client believes to be current."""
    return Precondition(
        request.headers.get("if-unmodified-since"),
        request.headers.get("if-match"),
    )


def paging(runtime: Runtime, request: Request, scope: str) -> Paging:
    """The page that the query parameters request."""
    query = request.query_params
    return runtime.cursors.paging(scope, query.get("next"), query.get("previous"))


def page_of(
    tx: Tx, runtime: Runtime, request: Request, query: str, scope: str, **values: Any
) -> Page:
    """The page of a list that the query parameters request; ``scope`` says which list its cursors are of."""
    asked = paging(runtime, request, scope)
    return page(tx, runtime.cursors, scope, query, asked, limits.PAGE_SIZE, **values)


def consumer_tokens(request: Request) -> tuple[str, str]:
    """The channel's and the consumer's token of a request."""
    return header(request, "x-broker-channel-token"), header(request, "x-broker-consumer-token")


def producer_tokens(request: Request) -> tuple[str, str, str]:
    """The channel's token, the producer's id and the producer's token of a request."""
    return (
        header(request, "x-broker-channel-token"),
        header(request, "x-broker-producer-id"),
        header(request, "x-broker-producer-token"),
    )


def is_admin(runtime: Runtime, request: Request) -> bool:
    """Whether the request has the admin token, or none is set, or an API key that may do what it asks for."""
    if runtime.admin_token is None or key_of(request) is not None:
        return True
    return ids.tokens_equal(runtime.admin_token, bearer(request))


def has_admin_token(runtime: Runtime, request: Request) -> bool:
    """Whether the request has the admin token, or an API key that may do what it asks for.

    Where no admin token is set nobody has it: everybody may read then, and nobody may act.
    """
    if key_of(request) is not None:
        return True
    return runtime.admin_token is not None and is_admin(runtime, request)


def require_admin(runtime: Runtime, request: Request) -> None:
    """Refuse, where an admin token is set, a request without it (401), or with a wrong one (403)."""
    if is_admin(runtime, request):
        return
    if not header(request, "authorization"):
        raise JobsError(
            401,
            "admin_token_missing",
            "send `Authorization: Bearer <admin token or API key>`",
            "Authorization",
        )
    raise forbidden("Authorization")


def require_reader(runtime: Runtime, request: Request, tx: Tx) -> Any:
    """The channel's row, for a client that may read it: with the admin token or the channel's token."""
    row = tx.one("get_channel", channel_id=request.path_params["channelId"])
    if not is_admin(runtime, request):
        token = header(request, "x-broker-channel-token")
        if row is None or not ids.token_matches(row["token_hash"], token):
            raise forbidden("X-Broker-Channel-Token")
    if row is None:
        raise JobsError(404, "not_found", "there is no such channel", "channelId")
    return row


def list_links(path: str, found: Page, **filters: str | Sequence[str]) -> dict[str, str]:
    """Links to the adjacent pages; filters are kept, those with several values as often."""
    kept = f"&{urlencode(filters, doseq=True, safe=',')}" if filters else ""
    links = {"next": found.next, "previous": found.previous}
    return {name: f"{path}?{name}={cursor}{kept}" for name, cursor in links.items() if cursor}
