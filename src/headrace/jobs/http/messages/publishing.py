"""Publishing: a message to all consumers of a channel, or many with one request, all or none."""

from __future__ import annotations

import base64
import binascii
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
from ..request import access
from ..request.endpoint import PRODUCER_TOKENS, Endpoint, Parameter, reply
from ..request.incoming import header, moment_us, producer_tokens, read_body, read_json

__all__ = ["ENDPOINTS", "At", "message_of"]


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
    tokens = producer_tokens(request)
    granted = access.key_of(request) is not None
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


_FIELDS: Final = {
    "X-Broker-Message-ID": "id",
    "X-Broker-Message-Priority": "priority",
    "X-Broker-Ordering-Key": "ordering_key",
    "X-Broker-Scheduled-For": "scheduled_for",
    "X-Broker-Metadata-Headers": "headers",
    "Idempotency-Key": "idempotent",
    "Content-Type": "content_type",
    "body": "payload",
}


async def publish_batch(runtime: Runtime, request: Request) -> Response:
    channel_id = request.path_params["channelId"]
    tokens = producer_tokens(request)
    # The tokens are checked before a large body is read.
    granted = access.key_of(request) is not None
    await runtime.database.read(
        lambda tx: accepting.publisher(tx, channel_id, *tokens, granted=granted)
    )
    body = await read_json(request, shapes.BatchBody, bytes_max=limits.BATCH_BYTES_MAX)
    if not 1 <= len(body.messages) <= limits.BATCH_MAX:
        raise bad_request(
            "invalid_batch", f"1 to {limits.BATCH_MAX} messages are accepted", "messages"
        )
    messages = [
        message_of(f"messages[{number}]", given) for number, given in enumerate(body.messages)
    ]

    replays = [given.idempotent for given in body.messages]
    publication = Publication(channel_id, *tokens, messages, replays, runtime.options, granted)
    try:
        published = await runtime.publish(publication)
    except MessageRefusedError as refused:
        with At(f"messages[{refused.number}]"):
            raise refused.error from None
    new = [one for one in published if not one.replayed]
    if new:
        runtime.metrics.add("jobs_published_total", len(new), channel=channel_id)
    shown = [
        shapes.PublishedBody(one.message_id, one.jobs, one.scheduled, one.replayed, one.duplicate)
        for one in published
    ]
    return reply(shapes.PublishedBatch(shown), 201 if new else 200)


class At:
    """A refusal within it names the message by ``where`` it is in the body."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, JobsError) and error.field is not None:
            field = f"{self._where}.{_FIELDS.get(error.field, error.field)}"
            raise JobsError(error.status, error.code, error.message, field) from error


def message_of(where: str, given: shapes.BatchMessage) -> NewMessage:
    """The message that is given at ``where`` in the body; 400 for one that cannot be."""
    with At(where):
        if given.idempotent and given.id is None:
            raise bad_request("id_missing", "an idempotent message needs an id", "id")
        _check_headers(given)
        payload = _payload(given)
        headers = dict(given.headers)
        if given.subject is not None:
            headers[SUBJECT] = checked_subject(given.subject, "subject")
        return NewMessage(
            payload=payload,
            content_type=given.content_type,
            message_id=None if given.id is None else ids.check_id(given.id, "id"),
            priority=given.priority,
            headers=headers,
            unique=None
            if given.unique is None
            else key_of_message(
                given.unique,
                "unique",
                payload=payload,
                content_type=given.content_type,
                ordering_key=given.ordering_key or None,
                headers=headers,
            ),
            ordering_key=given.ordering_key or None,
            scheduled_us=None
            if given.scheduled_for is None
            else moment_us(given.scheduled_for, "scheduled_for", "invalid_schedule"),
        )


def _payload(given: shapes.BatchMessage) -> bytes:
    if given.encoding is None:
        return given.payload.encode()
    if given.encoding != "base64":
        raise bad_request("unknown_encoding", "base64 is accepted, or none", "encoding")
    try:
        return base64.b64decode(given.payload.encode(), validate=True)
    except binascii.Error as error:
        raise bad_request("malformed_payload", f"this is no base64: {error}", "payload") from None


def _check_headers(given: shapes.BatchMessage) -> None:
    """Refuse headers that an endpoint could not be sent."""
    for name, value in given.headers.items():
        ids.check_header(name, value, "headers")
        if is_reserved(name):
            raise bad_request(
                "reserved_header", f"the header {name} is the service's own", "headers"
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
        errors=(400, 409, 412, 413, 415, 422),
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
        errors=(400, 409, 412, 413, 415, 422),
    ),
    Endpoint(
        method="POST",
        path="/v2/channel/{channelId}/messages/batch",
        handler=publish_batch,
        summary="Broadcast many messages in one transaction: all or none",
        body=shapes.BatchBody,
        answers={201: shapes.PublishedBatch, 200: shapes.PublishedBatch},
        tokens=PRODUCER_TOKENS,
        tag="messages",
        errors=(409, 412, 422),
    ),
)
