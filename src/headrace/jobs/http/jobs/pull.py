"""The specification's pull consumption, and the dead letters of both types."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import NOT_THE_RIGHT_ONE, bad_request
from ...models import Consumer, payload_fields, rfc3339, state_name
from ...runtime import counting
from ...runtime.runtime import Runtime
from ...service import leases, page_reads, replaying
from ...service.definitions import consumers
from ...states import Event, State
from ...store import Row, Tx
from .. import shapes
from ..messages.reading import stored_headers
from ..request.access import key_of, recorded, take_token
from ..request.endpoint import CONSUMER_TOKENS, CURSORS, Endpoint, Parameter, reply
from ..request.incoming import (
    consumer_tokens,
    has_admin_token,
    list_links,
    nested_too_deeply,
    number_between,
    page_of,
    read_body,
    read_form,
    require_reader,
)

__all__ = ["ENDPOINTS", "dead_counts_of"]


def _pull_consumer(tx: Tx, request: Request) -> Consumer:
    path = request.path_params
    return consumers.authorised_pull_consumer(
        tx,
        path["channelId"],
        path["consumerId"],
        *consumer_tokens(request),
        granted=key_of(request) is not None,
    )


def _consumer(tx: Tx, request: Request, *, unknown: int = 401) -> Consumer:
    path = request.path_params
    return consumers.authorised_consumer(
        tx,
        path["channelId"],
        path["consumerId"],
        *consumer_tokens(request),
        unknown=unknown,
        granted=key_of(request) is not None,
    )


async def queued_jobs(runtime: Runtime, request: Request) -> Response:
    limit_text = request.query_params.get("limit")

    def read(tx: Tx) -> Any:
        consumer = _pull_consumer(tx, request)
        limit = number_between(limit_text, limits.QUEUED_JOBS_DEFAULT, 0, None, "limit")
        return leases.list_queued(tx, consumer, limit)

    rows = await runtime.database.read(read)
    return reply(shapes.QueuedJobs([_queued(row) for row in rows]))


def _queued(row: Row) -> shapes.QueuedJob:
    payload, encoding = payload_fields(row["payload"])
    return shapes.QueuedJob(
        ID=str(row["seq"]),
        Priority=row["priority"],
        IncrementalTimeout=row["extra_s"],
        Message=shapes.QueuedMessage(
            MessageID=row["message_id"],
            Payload=payload,
            Headers=stored_headers(row),
            ContentType=row["content_type"],
            PayloadEncoding=encoding,
        ),
    )


async def get_job(runtime: Runtime, request: Request) -> Response:
    seq = ids.job_number(request.path_params["jobId"])

    def read(tx: Tx) -> Row:
        return leases.job_of_consumer(tx, _pull_consumer(tx, request), seq)

    row = await runtime.database.read(read)
    channel = f"/channel/{row['channel_id']}"
    consumer = f"{channel}/consumer/{row['consumer_id']}"
    return reply(
        shapes.JobShape(
            ListenerEndpoint=row["callback_url"],
            ListenerName=row["consumer_name"],
            Status=state_name(row["state"]),
            StatusChangedAt=rfc3339(row["changed_us"]),
            MessageURL=f"{channel}/message/{row['message_id']}",
            ChannelURL=channel,
            ConsumerURL=consumer,
            ProducerURL=f"/producer/{ids.shown_id(row['producer_id'])}"
            if row["producer_id"]
            else "",
            JobRequeueURL=_requeue_url(consumer, row) if row["state"] == State.DEAD else "",
        )
    )


def _requeue_url(consumer: str, row: Row) -> str:
    return f"{consumer}/job/{row['seq']}/requeue-dead-job"


async def change_job(runtime: Runtime, request: Request) -> Response:
    path_id = request.path_params["jobId"]
    raw = await read_body(request, limits.DOCUMENT_BYTES_MAX)

    def write(tx: Tx) -> tuple[Consumer, Event | None]:
        # The tokens and the path are checked before the body, as specified.
        consumer = _consumer(tx, request)
        if consumer.kind != "pull" and not leases.is_held(tx, consumer, path_id):
            raise consumers.not_pulled()
        seq = ids.job_number(path_id)
        leases.job_of_consumer(tx, consumer, seq)
        asked, incremental_s = _next_state(raw)
        options, now = runtime.options, tx.now_us()
        return consumer, leases.change_state(tx, consumer, seq, asked, incremental_s, options, now)

    consumer, event = await runtime.database.write(write)
    counting.count_move(runtime.metrics, consumer, event)
    return Response(status_code=202)


def _next_state(raw: bytes) -> tuple[str, int]:
    """``NextState`` and ``IncrementalTimeout``; keys are case-insensitive, unknown ones ignored."""
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise bad_request("malformed_json", f"the body is not JSON: {error}", "body") from None
    except RecursionError:
        raise nested_too_deeply() from None
    if not isinstance(document, dict):
        raise bad_request("malformed_json", "the body must be a JSON object", "body")
    fields = {name.lower(): value for name, value in document.items()}
    asked, extra = fields.get("nextstate", ""), fields.get("incrementaltimeout", 0)
    if not isinstance(asked, str):
        raise bad_request("invalid_body", "NextState is a string", "NextState")
    if type(extra) is not int or not 0 <= extra <= limits.INCREMENTAL_TIMEOUT_S_MAX:
        raise bad_request(
            "invalid_body",
            f"IncrementalTimeout is a whole number of seconds, 0 to {limits.INCREMENTAL_TIMEOUT_S_MAX}",
            "IncrementalTimeout",
        )
    return asked, extra


async def requeue_job(runtime: Runtime, request: Request) -> Response:
    path = request.path_params

    def write(tx: Tx) -> None:
        if has_admin_token(runtime, request):
            consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        else:
            consumer = _consumer(tx, request)
        replaying.requeue_dead_job(tx, consumer, ids.job_number(path["jobId"]), tx.now_us())

    await runtime.database.write(recorded(request, write))
    return Response(status_code=202)


async def delete_job(runtime: Runtime, request: Request) -> Response:
    path_id = request.path_params["jobId"]

    def write(tx: Tx) -> None:
        consumer = _consumer(tx, request, unknown=404)
        replaying.delete_dead_job(tx, consumer, ids.job_number(path_id))

    await runtime.database.write(recorded(request, write))
    return Response(status_code=204)


async def list_dead(runtime: Runtime, request: Request) -> Response:
    path = request.path_params
    scope = f"dead {path['channelId']} {path['consumerId']}"

    def read(tx: Tx) -> tuple[Consumer, page_reads.Page]:
        require_reader(runtime, request, tx)
        consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        return consumer, page_of(tx, runtime, request, "dead", scope, consumer_seq=consumer.seq)

    consumer, found = await runtime.database.read(read)
    base = f"/channel/{path['channelId']}"
    dead = [
        shapes.DeadJob(
            ID=str(row["seq"]),
            JobURL=f"/v2{base}/consumer/{consumer.consumer_id}/job/{row['seq']}",
            ListenerEndpoint=consumer.callback_url,
            ListenerName=consumer.name,
            Status=State.DEAD.name,
            StatusChangedAt=rfc3339(row["changed_us"]),
            MessageURL=f"{base}/message/{row['message_id']}",
            JobRequeueURL=_requeue_url(f"{base}/consumer/{consumer.consumer_id}", row),
            RetryAttemptCount=row["retries"],
            LastError=row["last_error"] or "",
        )
        for row in found.rows
    ]
    return reply(shapes.DeadJobs(dead, list_links(request.url.path, found)))


async def requeue_dead(runtime: Runtime, request: Request) -> Response:
    path = request.path_params
    token = (await read_form(request, ["requeue"])).get("requeue", "")
    if token:
        take_token(runtime, request, "requeue", token)

    def read(tx: Tx) -> Consumer:
        consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        is_known = has_admin_token(runtime, request)
        if not is_known and not consumers.token_is_of(consumer, token):
            raise bad_request(
                NOT_THE_RIGHT_ONE, "send the consumer's token as `requeue`", "requeue"
            )
        return consumer

    consumer = await runtime.database.read(read)
    after: int | None = 0

    def write(tx: Tx) -> int | None:
        return replaying.requeue_some(tx, consumer, after or 0, tx.now_us())[1]

    after = await runtime.in_turn(recorded(request, write))
    while after is not None:
        after = await runtime.in_turn(write)
    return Response(status_code=202)


async def purge_dead(runtime: Runtime, request: Request) -> Response:
    consumer = await runtime.database.read(lambda tx: _consumer(tx, request, unknown=404))

    def write(tx: Tx) -> int:
        return replaying.purge_some(tx, consumer)

    total = last = await runtime.in_turn(recorded(request, write))
    while last == limits.SWEEP_ROWS:
        last = await runtime.in_turn(write)
        total += last
    return reply(shapes.Deleted(total))


def dead_counts_of(rows: list[tuple[Row, dict[State, int]]]) -> shapes.DeadCounts:
    """The dead letters of every consumer that has any."""
    return shapes.DeadCounts(
        [
            shapes.DeadCount(
                row["channel_id"],
                row["channel_name"],
                row["consumer_id"],
                row["name"],
                counts[State.DEAD],
            )
            for row, counts in rows
            if counts.get(State.DEAD)
        ]
    )


_BASE: Final = "/channel/{channelId}/consumer/{consumerId}"

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=f"{_BASE}/queued-jobs",
        handler=queued_jobs,
        summary="The consumer's QUEUED jobs, by falling priority, oldest first; nothing is claimed",
        answers={200: shapes.QueuedJobs},
        parameters=(Parameter("limit", "default 25; more than 100 is 100", type="integer"),),
        tokens=CONSUMER_TOKENS,
        tag="pull",
        errors=(410, 412),
    ),
    Endpoint(
        method="GET",
        path=f"{_BASE}/job/{{jobId}}",
        handler=get_job,
        summary="A job of a pull consumer",
        answers={200: shapes.JobShape},
        tokens=CONSUMER_TOKENS,
        tag="pull",
        errors=(400, 410, 412),
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/job/{{jobId}}",
        handler=change_job,
        summary='Move a job: `{"NextState": "INFLIGHT", "IncrementalTimeout": 10}`, DELIVERED or DEAD',
        answers={202: None},
        tokens=CONSUMER_TOKENS,
        tag="pull",
        errors=(400, 410, 412, 413, 415),
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/job/{{jobId}}/requeue-dead-job",
        handler=requeue_job,
        summary="Send one dead job back, with all its retries; for push consumers, too",
        answers={202: None},
        tokens=CONSUMER_TOKENS,
        scopes=("consume", "operate"),
        audited=True,
        tag="dead letters",
        errors=(400, 410),
    ),
    Endpoint(
        method="DELETE",
        path=f"{_BASE}/job/{{jobId}}",
        handler=delete_job,
        summary="Delete one dead job",
        answers={204: None},
        tokens=CONSUMER_TOKENS,
        scopes=("consume", "operate"),
        audited=True,
        tag="dead letters",
    ),
    Endpoint(
        method="GET",
        path=f"{_BASE}/dlq",
        handler=list_dead,
        summary="The consumer's dead jobs with their last error, newest first",
        answers={200: shapes.DeadJobs},
        parameters=CURSORS,
        tokens=("X-Broker-Channel-Token",),
        admin=True,
        tag="dead letters",
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/dlq",
        handler=requeue_dead,
        summary="Send all dead jobs back",
        answers={202: None},
        form=(Parameter("requeue", "the consumer's token; not needed with the admin token"),),
        scopes=("consume", "operate"),
        audited=True,
        tag="dead letters",
    ),
    Endpoint(
        method="DELETE",
        path=f"{_BASE}/dlq",
        handler=purge_dead,
        summary="Delete all dead jobs",
        answers={200: shapes.Deleted},
        tokens=CONSUMER_TOKENS,
        scopes=("consume", "operate"),
        audited=True,
        tag="dead letters",
    ),
)
