"""Channels that live in a stream: published to, where their consumers are, and delivering again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...broker import streams_of
from ...channel_stream import stream_of
from ...errors import JobsError, bad_request
from ...models import Consumer, NewMessage, Published, rfc3339
from ...runtime.runtime import Runtime
from ...service import consumers, cursors, streamed
from ...service.cursors import Cursor
from ...store import Row, Tx
from ...streams.looking import Standing, standing_of
from ..request.access import recorded
from ..request.endpoint import Endpoint, reply
from ..request.incoming import moment_us, read_json, require_admin

__all__ = ["ENDPOINTS", "publish_to_stream"]


class StreamReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    sequence: int | None = None
    since: str | None = None


class StreamStanding(msgspec.Struct):
    channel: str
    consumer: str
    stream: str
    durable: str
    acknowledged: int | None
    delivered: int | None
    lag: int | None
    under_way: int | None
    first_sequence: int | None
    last_sequence: int | None
    replay_sequence: int | None
    replay_since: str | None
    problem: str | None


async def publish_to_stream(
    runtime: Runtime, allowed: Row, messages: Sequence[NewMessage], replays: Sequence[bool]
) -> list[Published] | None:
    """Publish these to the stream in which the channel lives; None: it lives in the database.

    They are checked by the caller. 409 for an id that the stream knows, unless it may be replayed.
    """
    stream = stream_of(allowed["stream"])
    if stream is None:
        runtime.streamed.discard(allowed["channel_id"])
        return None
    runtime.streamed.add(allowed["channel_id"])
    streams = streams_of(runtime.streams)
    for message in messages:
        streamed.refuse_message(message)
    prefix = await streams.prefix(stream.name)
    published = []
    answers = await streams.publish(stream, messages)
    for (sequence, known), replay in zip(answers, replays, strict=True):
        if known and not replay:
            raise JobsError(
                409,
                "message_exists",
                f"the stream has a message with this id, sequence {sequence}",
                "X-Broker-Message-ID",
            )
        published.append(
            Published(message_id=f"{prefix}.{sequence}", scheduled=False, jobs=0, replayed=known)
        )
    return published


async def get_standing(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path = request.path_params

    def read(tx: Tx) -> tuple[Consumer, Cursor]:
        consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        return consumer, cursors.cursor_of(tx, consumer.seq)

    return await _told(runtime, *await runtime.database.read(read))


async def _told(runtime: Runtime, consumer: Consumer, cursor: Cursor) -> Response:
    standing, problem = Standing(acknowledged=cursor.acked_seq), None
    try:
        standing = await standing_of(streams_of(runtime.streams), cursor)
    except JobsError as error:
        problem = error.message
    replay = cursor.replay
    since_us = None if replay is None else replay.since_us
    shape = StreamStanding(
        channel=consumer.channel_id,
        consumer=consumer.consumer_id,
        stream=cursor.stream,
        durable=cursor.durable,
        acknowledged=standing.acknowledged,
        delivered=standing.delivered,
        lag=standing.lag,
        under_way=standing.under_way,
        first_sequence=standing.first,
        last_sequence=standing.last,
        replay_sequence=None if replay is None else replay.sequence,
        replay_since=None if since_us is None else rfc3339(since_us),
        problem=problem,
    )
    return reply(shape)


async def replay(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, StreamReplayBody)
    path = request.path_params
    if body.sequence is not None and body.since is not None:
        raise bad_request("two_places", "a sequence, or a time, but not both", "since")
    wanted = cursors.Replay(
        sequence=body.sequence,
        since_us=None if body.since is None else moment_us(body.since, "since"),
    )
    channel_id, consumer_id = path["channelId"], path["consumerId"]

    def write(tx: Tx) -> tuple[Consumer, Cursor]:
        cursor = streamed.ask_replay(tx, channel_id, consumer_id, wanted, tx.now_us())
        return consumers.find_consumer(tx, channel_id, consumer_id), cursor

    detail = f"sequence: {body.sequence}" if body.since is None else f"since: {body.since}"
    found = await runtime.database.write(recorded(request, write, detail))
    runtime.metrics.add("jobs_events_total", kind="stream_replayed")
    return await _told(runtime, *found)


_BASE: Final = "/v2/channel/{channelId}/consumer/{consumerId}/stream"

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=_BASE,
        handler=get_standing,
        summary="Where a consumer is in the stream in which its channel lives: cursor, lag, under way",
        answers={200: StreamStanding},
        tag="consumers",
        admin=True,
        legacy=False,
        errors=(401, 403, 404),
    ),
    Endpoint(
        method="POST",
        path=f"{_BASE}/replay",
        handler=replay,
        summary="Deliver again what the stream has, from a sequence or a time on",
        body=StreamReplayBody,
        answers={200: StreamStanding},
        tag="consumers",
        admin=True,
        scopes=("operate",),
        audited=True,
        legacy=False,
        errors=(400, 401, 403, 404, 413),
    ),
)
