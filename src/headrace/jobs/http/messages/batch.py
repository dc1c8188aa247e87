"""Publishing many messages with one request: one transaction, all or none."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import JobsError, bad_request
from ...matching.filters import SUBJECT, checked_subject
from ...matching.unique import key_of
from ...models import NewMessage, is_reserved
from ...runtime.runtime import Runtime
from ...service.publishing import accepting
from ...service.publishing.publishing import MessageRefusedError, Publication
from .. import shapes
from ..request import access
from ..request.endpoint import PRODUCER_TOKENS, Endpoint, reply
from ..request.incoming import header, moment_us, read_json

__all__ = ["ENDPOINTS", "At", "message_of"]

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
    tokens = (
        header(request, "x-broker-channel-token"),
        header(request, "x-broker-producer-id"),
        header(request, "x-broker-producer-token"),
    )
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
            else key_of(
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
    """What an endpoint is sent as headers must be such."""
    for name, value in given.headers.items():
        ids.check_header(name, value, "headers")
        if is_reserved(name):
            raise bad_request(
                "reserved_header", f"the header {name} is the service's own", "headers"
            )


ENDPOINTS: Final = (
    Endpoint(
        method="POST",
        path="/v2/channel/{channelId}/messages/batch",
        handler=publish_batch,
        summary="Broadcast many messages in one transaction: all or none",
        body=shapes.BatchBody,
        answers={201: shapes.PublishedBatch, 200: shapes.PublishedBatch},
        tokens=PRODUCER_TOKENS,
        tag="messages",
        legacy=False,
        errors=(400, 401, 403, 404, 409, 412, 413, 415, 422),
    ),
)
