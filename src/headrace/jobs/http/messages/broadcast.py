"""Broadcasting: requests are checked and stored."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import JobsError, bad_request
from ...matching.filters import SUBJECT, checked_subject
from ...matching.unique import Unique, UniqueKey
from ...matching.unique import key_of as key_of_message
from ...models import NewMessage, Published, is_reserved
from ...runtime.runtime import Runtime
from ...service.publishing import accepting
from ...service.publishing.publishing import MessageRefusedError, Publication
from .. import shapes
from ..request.access import key_of
from ..request.endpoint import PRODUCER_TOKENS, Endpoint, Parameter, reply
from ..request.incoming import header, moment_us, read_body

__all__ = ["ENDPOINTS"]

_SMALL_BYTES: Final = 64 * 1024
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")

# Whoever says none of these wants nothing but the message stored.
_SPECIAL: Final = frozenset(
    {
        *(b"idempotency-key", b"x-broker-message-id", b"x-broker-message-priority"),
        *(b"x-broker-metadata-headers", b"x-broker-ordering-key", b"x-broker-scheduled-for"),
        *(b"x-broker-subject", b"x-broker-unique"),
    }
)


async def broadcast(runtime: Runtime, request: Request) -> Response:
    published = await _publish(runtime, request)
    path = "scheduled-message" if published.scheduled else "message"
    location = f"/channel/{request.path_params['channelId']}/{path}/{published.message_id}"
    return Response(status_code=201, headers={"Location": location})


async def publish(runtime: Runtime, request: Request) -> Response:
    published = await _publish(runtime, request)
    shape = shapes.PublishedBody(
        published.message_id,
        published.jobs,
        published.scheduled,
        published.replayed,
        published.duplicate,
    )
    return reply(shape, 200 if published.replayed else 201)


async def _publish(runtime: Runtime, request: Request) -> Published:
    channel_id = request.path_params["channelId"]
    tokens = (
        header(request, "x-broker-channel-token"),
        header(request, "x-broker-producer-id"),
        header(request, "x-broker-producer-token"),
    )
    granted = key_of(request) is not None
    if not _is_small(runtime, request):
        # The tokens are checked before a large body is read.
        await runtime.database.read(
            lambda tx: accepting.publisher(tx, channel_id, *tokens, granted=granted)
        )
    body = await read_body(request, runtime.options.payload_bytes_max)

    message: NewMessage | JobsError
    try:
        message, replay = _message(request, body)
    except JobsError as error:
        message, replay = error, False  # told only to those who may publish

    messages = message if isinstance(message, JobsError) else [message]
    publication = Publication(channel_id, *tokens, messages, [replay], runtime.options, granted)
    try:
        (stored,) = await runtime.publish(publication)
    except MessageRefusedError as refused:
        raise refused.error from None
    return _counted(runtime, channel_id, stored)


def _counted(runtime: Runtime, channel_id: str, published: Published) -> Published:
    if not published.replayed:
        runtime.metrics.add("jobs_published_total", channel=channel_id)
    return published


def _is_small(runtime: Runtime, request: Request) -> bool:
    """Whether the body is so small that reading it costs less than a look at the tokens before."""
    declared = header(request, "content-length")
    bytes_max = min(_SMALL_BYTES, runtime.options.payload_bytes_max)
    return declared.isascii() and declared.isdigit() and int(declared[:18]) <= bytes_max


def _message(request: Request, body: bytes) -> tuple[NewMessage, bool]:
    content_type = _text(header(request, "content-type"), "Content-Type")
    content_type = content_type or "application/octet-stream"
    if _SPECIAL.isdisjoint(name for name, _ in request.scope["headers"]):
        return NewMessage(payload=body, content_type=content_type), False
    key = request.headers.get("idempotency-key")
    message_id = header(request, "x-broker-message-id") or None
    if key is not None:
        if message_id is not None and message_id != key:
            raise bad_request(
                "two_ids",
                "Idempotency-Key and X-Broker-Message-ID must not differ",
                "Idempotency-Key",
            )
        message_id = ids.check_id(key, "Idempotency-Key")
    headers = _metadata(request)
    ordering_key = _text(header(request, "x-broker-ordering-key"), "X-Broker-Ordering-Key") or None
    message = NewMessage(
        payload=body,
        content_type=content_type,
        message_id=message_id,
        priority=_priority(header(request, "x-broker-message-priority")),
        headers=headers,
        ordering_key=ordering_key,
        unique=_unique(request, body, content_type, ordering_key, headers),
        scheduled_us=_schedule(header(request, "x-broker-scheduled-for")),
    )
    return message, key is not None


def _unique(
    request: Request,
    body: bytes,
    content_type: str,
    ordering_key: str | None,
    headers: dict[str, str],
) -> UniqueKey | None:
    text = _text(header(request, "x-broker-unique"), "X-Broker-Unique")
    if not text:
        return None
    try:
        wanted = msgspec.json.decode(text, type=Unique)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise bad_request(
            "invalid_unique",
            f'JSON such as {{"by": ["payload:$.user.id"], "within": 60}} is accepted: {error}',
            "X-Broker-Unique",
        ) from None
    return key_of_message(
        wanted,
        "X-Broker-Unique",
        payload=body,
        content_type=content_type,
        ordering_key=ordering_key,
        headers=headers,
    )


def _priority(text: str) -> int:
    """A value that is not a whole number counts as 0, as the predecessor's clients expect; one that is
    negative, or larger than a priority may be, is rejected.
    """
    if not _NUMBER.fullmatch(text.strip()):
        return 0
    digits = text.strip()
    # So many digits are beyond any limit, and may be beyond what can be read as a number.
    return int(digits) if len(digits) <= 20 else limits.PRIORITY_MAX + 1


def _schedule(text: str) -> int | None:
    if not text:
        return None
    return moment_us(text, "X-Broker-Scheduled-For", "invalid_schedule")


def _metadata(request: Request) -> dict[str, str]:
    names = [name.strip() for name in header(request, "x-broker-metadata-headers").split(",")]
    stored: dict[str, str] = {}
    for name in names:
        lower = name.lower()
        if not name or lower not in request.headers:
            continue
        if is_reserved(name):
            raise bad_request(
                "reserved_header",
                f"the header {name} is the service's own",
                "X-Broker-Metadata-Headers",
            )
        text = _text(request.headers[lower], name)
        stored[name] = ids.check_header(name, text, name)
    if subject := header(request, "x-broker-subject"):
        stored[SUBJECT] = checked_subject(_text(subject, "X-Broker-Subject"), "X-Broker-Subject")
    return stored


def _text(value: str, field: str) -> str:
    """A header's value as it was meant: UTF-8, though HTTP reads single bytes; 400 for what is none."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise bad_request(
            "invalid_header",
            f"{field} is no UTF-8 at byte {error.start}, as text in headers is",
            field,
        ) from None


_BROADCAST: Final = (
    Parameter("X-Broker-Message-ID", "unique in the channel; taken: 409", "header"),
    Parameter(
        "Idempotency-Key", "as the id, but the same message again is accepted again", "header"
    ),
    Parameter(
        "X-Broker-Message-Priority", "0 (default) or more; higher goes first", "header", "integer"
    ),
    Parameter(
        "X-Broker-Ordering-Key", "jobs of one key are handed out one at a time, in order", "header"
    ),
    Parameter(
        "X-Broker-Subject", "what it is about, such as orders.eu.paid; filters go by it", "header"
    ),
    Parameter(
        "X-Broker-Unique",
        'JSON: `{"by": ["subject", "payload:$.user.id"], "within": 60, "while": ["QUEUED"]}`; '
        "a second message that is the same by these is answered with the first one's id",
        "header",
    ),
    Parameter("X-Broker-Scheduled-For", "RFC 3339; when to dispatch", "header"),
    Parameter(
        "X-Broker-Metadata-Headers", "names of request headers to pass on, by commas", "header"
    ),
)

ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/channel/{channelId}/broadcast",
        handler=broadcast,
        summary="Broadcast a message: one job for every consumer",
        answers={201: None},
        parameters=_BROADCAST,
        tokens=PRODUCER_TOKENS,
        tag="messages",
        errors=(400, 401, 403, 404, 409, 412, 413, 415, 422),
    ),
    Endpoint(
        method="POST",
        path="/v2/channel/{channelId}/messages",
        handler=publish,
        summary="Broadcast a message, answered in JSON",
        answers={201: shapes.PublishedBody, 200: shapes.PublishedBody},
        parameters=_BROADCAST,
        tokens=PRODUCER_TOKENS,
        tag="messages",
        legacy=False,
        errors=(400, 401, 403, 404, 409, 412, 413, 415, 422),
    ),
)
