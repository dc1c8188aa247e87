"""Reading broadcast and scheduled messages."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import not_found
from ...models import payload_fields, rfc3339, state_name
from ...runtime.runtime import Runtime
from ...service import page_reads
from ...service.publishing import publishing
from ...store import Row, Tx
from .. import shapes
from ..request.access import recorded
from ..request.endpoint import CHANNEL_TOKENS, CURSORS, Endpoint, Parameter, reply
from ..request.incoming import list_links, number_between, page_of, require_reader

__all__ = ["ENDPOINTS", "stored_headers"]

_MESSAGE_STATUS: Final = {101: "ACKNOWLEDGED", 102: "DISPATCHED"}
_SCHEDULED_STATUS: Final = {101: "SCHEDULED", 102: "DISPATCHED"}


async def get_message(runtime: Runtime, request: Request) -> Response:
    message_id = request.path_params["messageId"]

    def read(tx: Tx) -> tuple[Row, Any]:
        channel = require_reader(runtime, request, tx)
        return page_reads.get_message(tx, channel["seq"], message_id)

    row, jobs = await runtime.database.read(read)
    if row["status"] != 102 and row["scheduled_us"] is not None:
        raise not_found("message", "messageId")
    payload, encoding = payload_fields(row["payload"])
    shown = jobs[: limits.JOBS_OF_MESSAGE_MAX]
    base = f"/v2/channel/{request.path_params['channelId']}/consumer"
    return reply(
        shapes.MessageShape(
            ID=row["message_id"],
            Payload=payload,
            ContentType=row["content_type"],
            ProducedBy=row["producer_name"] or "",
            ReceivedAt=rfc3339(row["received_us"]),
            DispatchedAt=None if row["dispatched_us"] is None else rfc3339(row["dispatched_us"]),
            Status=_MESSAGE_STATUS[row["status"]],
            Jobs=[
                shapes.JobOfMessage(
                    ID=str(job["seq"]),
                    JobURL=f"{base}/{job['consumer_id']}/job/{job['seq']}",
                    ListenerEndpoint=job["callback_url"],
                    ListenerName=job["name"],
                    Status=state_name(job["state"]),
                    StatusChangedAt=rfc3339(job["changed_us"]),
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
    accepted = bool(wanted) and "102" not in wanted
    scope = f"{'accepted' if accepted else 'messages'} {channel_id}"

    def read(tx: Tx) -> page_reads.Page:
        channel = require_reader(runtime, request, tx)
        query = "accepted" if accepted else "messages"
        found = page_of(tx, runtime, request, query, scope, channel_seq=channel["seq"])
        return page_reads.Page([]) if accepted and "101" not in wanted else found

    found = await runtime.database.read(read)
    filters = {"status": "101" if accepted else "102"} if wanted else {}
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
        return page_reads.message_counts(tx, channel["seq"]), None if row is None else row["at_us"]

    counts, upcoming = await runtime.database.read(read)
    base = f"/channel/{channel_id}"

    def count(kinds: tuple[int, ...], link: str) -> shapes.StatusCount:
        return shapes.StatusCount(
            sum(counts.get(kind, 0) for kind in kinds), {"messages": base + link}
        )

    return reply(
        shapes.MessagesStatus(
            {
                "ACKNOWLEDGED": count((101,), "/messages?status=101"),
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

    def read(tx: Tx) -> page_reads.Page:
        channel = require_reader(runtime, request, tx)
        values = {"channel_seq": channel["seq"], "status": wanted}
        return page_of(tx, runtime, request, "scheduled", scope, **values)

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
        row, _ = page_reads.get_message(tx, channel["seq"], message_id)
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
            producedBy=ids.shown_id(row["producer_id"]),
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

    await runtime.database.write(recorded(request, write))
    return Response(status_code=204)


ENDPOINTS: Final = (
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
            scopes=("operate",),
            audited=method == "DELETE",
            tag="messages",
            errors=(400,),
        )
        for method, path, handler, summary, answers, parameters in (
            (
                "GET",
                "/messages",
                list_messages,
                "Dispatched messages, newest first",
                {200: shapes.Listing},
                (*CURSORS, Parameter("status", "101 or 102")),
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
                (*CURSORS, Parameter("status", "101 or 102")),
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
