"""Broadcasting, and looking at what was broadcast."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .. import ids, limits
from ..errors import bad_request, not_found
from ..models import NewMessage, Published, payload_fields, rfc3339, state_name
from ..runtime import Runtime
from ..service import publishing, reads
from ..store import Row, Tx
from . import shapes
from .definitions import list_links
from .endpoint import CHANNEL_TOKENS, PRODUCER_TOKENS, Endpoint, Parameter, reply
from .incoming import header, number_between, paging, read_body, require_reader

__all__ = ["ENDPOINTS", "RESERVED_HEADERS", "RESERVED_PREFIXES", "stored_headers"]

# A producer must not be able to change what the service itself says to an endpoint.
RESERVED_HEADERS: Final = {
    *(
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
    ),
    *(
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ),
    *("x-request-id", "forwarded"),
}
RESERVED_PREFIXES: Final = ("x-broker-", "webhook-", "x-headrace-", "proxy-")
_MESSAGE_STATUS: Final = {101: "ACKNOWLEDGED", 102: "DISPATCHED"}
_SCHEDULED_STATUS: Final = {101: "SCHEDULED", 102: "DISPATCHED"}


async def broadcast(runtime: Runtime, request: Request) -> Response:
    published = await _publish(runtime, request)
    path = "scheduled-message" if published.scheduled else "message"
    location = f"/channel/{request.path_params['channelId']}/{path}/{published.message_id}"
    return Response(status_code=201, headers={"Location": location})


async def publish(runtime: Runtime, request: Request) -> Response:
    published = await _publish(runtime, request)
    shape = shapes.PublishedBody(
        published.message_id, published.jobs, published.scheduled, published.replayed
    )
    return reply(shape, 200 if published.replayed else 201)


async def _publish(runtime: Runtime, request: Request) -> Published:
    channel_id = request.path_params["channelId"]
    tokens = (
        header(request, "x-broker-channel-token"),
        header(request, "x-broker-producer-id"),
        header(request, "x-broker-producer-token"),
    )
    # Tokens are looked at before the body is read, and again with the insert: they may change meanwhile.
    await runtime.database.read(lambda tx: publishing.publisher(tx, channel_id, *tokens))
    body = await read_body(request, runtime.options.payload_bytes_max)
    message, replay = _message(request, body)
    now = runtime.now_us()
    publishing.check_message(message, runtime.options, now)

    def write(tx: Tx) -> Published:
        allowed = publishing.publisher(tx, channel_id, *tokens)
        return publishing.broadcast(
            tx, allowed["channel_seq"], allowed["producer_seq"], message, now, replay=replay
        )

    published = await runtime.database.write(write)
    if not published.replayed:
        runtime.metrics.add("jobs_published_total", channel=channel_id)
        runtime.metrics.add("jobs_enqueued_total", published.jobs, channel=channel_id)
    return published


def _message(request: Request, body: bytes) -> tuple[NewMessage, bool]:
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
    message = NewMessage(
        payload=body,
        content_type=header(request, "content-type") or "application/octet-stream",
        message_id=message_id,
        priority=_priority(header(request, "x-broker-message-priority")),
        headers=_metadata(request),
        ordering_key=header(request, "x-broker-ordering-key") or None,
        scheduled_us=_schedule(header(request, "x-broker-scheduled-for")),
    )
    return message, key is not None


def _priority(text: str) -> int:
    """What is no number counts as 0, as the predecessor's clients expect; a negative one is refused."""
    try:
        priority = int(text) if len(text) <= 20 else 0
    except ValueError:
        return 0
    return priority


def _schedule(text: str) -> int | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or "T" not in text.upper():
        raise bad_request(
            "invalid_schedule",
            "a time like 2026-01-31T23:59:59Z (RFC 3339, with its zone) is accepted",
            "X-Broker-Scheduled-For",
        )
    return round(at.astimezone(UTC).timestamp() * 1e6)


def _metadata(request: Request) -> dict[str, str]:
    names = [name.strip() for name in header(request, "x-broker-metadata-headers").split(",")]
    stored: dict[str, str] = {}
    for name in names:
        lower = name.lower()
        if not name or lower not in request.headers:
            continue
        if lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES):
            raise bad_request(
                "reserved_header",
                f"the header {name} is the service's own",
                "X-Broker-Metadata-Headers",
            )
        stored[name] = request.headers[lower]
    return stored


async def get_message(runtime: Runtime, request: Request) -> Response:
    message_id = request.path_params["messageId"]

    def read(tx: Tx) -> tuple[Row, Any]:
        channel = require_reader(runtime, request, tx)
        return reads.get_message(tx, channel["seq"], message_id)

    row, jobs = await runtime.database.read(read)
    if row["status"] != 102:
        raise not_found("message", "messageId")
    payload, encoding = payload_fields(row["payload"])
    shown = jobs[: limits.JOBS_OF_MESSAGE_MAX]
    return reply(
        shapes.MessageShape(
            ID=row["message_id"],
            Payload=payload,
            ContentType=row["content_type"],
            ProducedBy=row["producer_name"] or "",
            ReceivedAt=rfc3339(row["received_us"]),
            DispatchedAt=rfc3339(row["dispatched_us"]),
            Status=_MESSAGE_STATUS[row["status"]],
            Jobs=[
                shapes.JobOfMessage(
                    job["callback_url"],
                    job["name"],
                    state_name(job["state"]),
                    rfc3339(job["changed_us"]),
                )
                for job in shown
            ],
            Headers=stored_headers(row),
            PayloadEncoding=encoding,
            JobsTruncated=len(jobs) > len(shown),
        )
    )


def stored_headers(row: Row) -> dict[str, str]:
    """The stored metadata headers of a message."""
    return msgspec.json.decode(row["headers"], type=dict[str, str])


async def list_messages(runtime: Runtime, request: Request) -> Response:
    channel_id = request.path_params["channelId"]
    wanted = [value for value in request.query_params.getlist("status") if value.isdigit()]
    scope = f"messages {channel_id}"

    def read(tx: Tx) -> reads.Page:
        channel = require_reader(runtime, request, tx)
        asked = paging(runtime, request, scope)
        if wanted and "102" not in wanted:
            # Fan-out belongs to the insert: no message is ever only acknowledged.
            return reads.Page([])
        return reads.page(
            tx,
            runtime.cursors,
            scope,
            "messages",
            asked,
            limits.PAGE_SIZE,
            channel_seq=channel["seq"],
        )

    found = await runtime.database.read(read)
    filters = {"status": "102"} if wanted else {}
    return reply(
        shapes.Listing(
            [f"/channel/{channel_id}/message/{row['message_id']}" for row in found.rows],
            list_links(request.url.path, found, **filters),
        )
    )


async def messages_status(runtime: Runtime, request: Request) -> Response:
    channel_id = request.path_params["channelId"]

    def read(tx: Tx) -> tuple[dict[int, int], int | None]:
        channel = require_reader(runtime, request, tx)
        row = tx.one("next_scheduled_of_channel_us", channel_seq=channel["seq"])
        return reads.message_counts(tx, channel["seq"]), None if row is None else row["at_us"]

    counts, upcoming = await runtime.database.read(read)
    base = f"/channel/{channel_id}"

    def count(kinds: tuple[int, ...], link: str) -> shapes.StatusCount:
        return shapes.StatusCount(
            sum(counts.get(kind, 0) for kind in kinds), {"messages": base + link}
        )

    return reply(
        shapes.MessagesStatus(
            {
                "ACKNOWLEDGED": count((), "/messages?status=101"),
                "DISPATCHED": count((102, 202), "/messages?status=102"),
                "SCHEDULED_SCHEDULED": count((201,), "/scheduled-messages?status=101"),
                "SCHEDULED_DISPATCHED": count((202,), "/scheduled-messages?status=102"),
            },
            None if upcoming is None else rfc3339(upcoming),
        )
    )


async def list_scheduled(runtime: Runtime, request: Request) -> Response:
    channel_id = request.path_params["channelId"]
    status = request.query_params.get("status")
    wanted = number_between(status, 0, 101, 102, "status")
    scope = f"scheduled {channel_id} {wanted}"

    def read(tx: Tx) -> reads.Page:
        channel = require_reader(runtime, request, tx)
        asked = paging(runtime, request, scope)
        return reads.page(
            tx,
            runtime.cursors,
            scope,
            "scheduled",
            asked,
            limits.PAGE_SIZE,
            channel_seq=channel["seq"],
            status=wanted,
        )

    found = await runtime.database.read(read)
    filters = {"status": str(wanted)} if wanted else {}
    return reply(
        shapes.ScheduledListing(
            [f"/channel/{channel_id}/scheduled-message/{row['message_id']}" for row in found.rows],
            list_links(request.url.path, found, **filters),
        )
    )


async def get_scheduled(runtime: Runtime, request: Request) -> Response:
    message_id = request.path_params["messageId"]

    def read(tx: Tx) -> Row:
        channel = require_reader(runtime, request, tx)
        row, _ = reads.get_message(tx, channel["seq"], message_id)
        return row

    row = await runtime.database.read(read)
    if row["scheduled_us"] is None:
        raise not_found("scheduled message", "messageId")
    payload, encoding = payload_fields(row["payload"])
    dispatched = row["dispatched_us"]
    return reply(
        shapes.ScheduledShape(
            id=str(row["seq"]),
            messageId=row["message_id"],
            contentType=row["content_type"],
            priority=row["priority"],
            producedBy=row["producer_id"] or "",
            dispatchSchedule=rfc3339(row["scheduled_us"]),
            dispatchedAt=None if dispatched is None else rfc3339(dispatched),
            status=_SCHEDULED_STATUS[row["status"]],
            payload=payload,
            headers=stored_headers(row),
            payloadEncoding=encoding,
        )
    )


async def cancel_scheduled(runtime: Runtime, request: Request) -> Response:
    message_id = request.path_params["messageId"]

    def write(tx: Tx) -> None:
        channel = require_reader(runtime, request, tx)
        publishing.cancel_scheduled(tx, channel["seq"], message_id)

    await runtime.database.write(write)
    return Response(status_code=204)


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
    Parameter("X-Broker-Scheduled-For", "RFC 3339; when to dispatch", "header"),
    Parameter(
        "X-Broker-Metadata-Headers", "names of request headers to pass on, by commas", "header"
    ),
)
_CURSORS: Final = (Parameter("next", "cursor"), Parameter("previous", "cursor"))
_READ_ERRORS: Final = (400, 401, 403, 404)

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
        errors=(400, 401, 403, 404, 409, 412, 413, 422),
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
        errors=(400, 401, 403, 404, 409, 412, 413, 422),
    ),
    *(
        Endpoint(
            method=method,
            path=f"/channel/{{channelId}}{path}",
            handler=handler,
            summary=summary,
            answers=answers,
            parameters=parameters,
            tokens=CHANNEL_TOKENS,
            admin=True,
            tag="messages",
            errors=_READ_ERRORS,
        )
        for method, path, handler, summary, answers, parameters in (
            (
                "GET",
                "/messages",
                list_messages,
                "Dispatched messages, newest first",
                {200: shapes.Listing},
                (*_CURSORS, Parameter("status", "101 or 102")),
            ),
            (
                "GET",
                "/message/{messageId}",
                get_message,
                "A message",
                {200: shapes.MessageShape},
                (),
            ),
            (
                "GET",
                "/messages-status",
                messages_status,
                "How many messages",
                {200: shapes.MessagesStatus},
                (),
            ),
            (
                "GET",
                "/scheduled-messages",
                list_scheduled,
                "Scheduled messages, newest first",
                {200: shapes.ScheduledListing},
                (*_CURSORS, Parameter("status", "101 or 102")),
            ),
            (
                "GET",
                "/scheduled-message/{messageId}",
                get_scheduled,
                "A scheduled message",
                {200: shapes.ScheduledShape},
                (),
            ),
            (
                "DELETE",
                "/scheduled-message/{messageId}",
                cancel_scheduled,
                "Cancel a scheduled message that still waits",
                {204: None},
                (),
            ),
        )
    ),
)
