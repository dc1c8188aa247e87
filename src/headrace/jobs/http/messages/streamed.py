"""Channels that live in a stream: published to, where their consumers are, and delivering again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import limits
from ...broker import Place, streams_of
from ...channel_stream import ChannelStream, stream_of
from ...errors import JobsError, bad_request
from ...models import NewMessage, Published, rfc3339
from ...runtime.runtime import Runtime
from ...service import stream_positions
from ...service.definitions import channels, consumers
from ...service.push import lanes
from ...service.stream_positions import Follower
from ...service.streamed import stream_channels
from ...states import State
from ...store import Row, Tx
from ...streams.looking import Standing, standing_of, standings_of, waits_for
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
    paused: bool
    disabled_reason: str | None
    failing_since: str | None
    waits_for: str
    jobs: dict[str, int]


class ChannelStanding(msgspec.Struct):
    channel: str
    stream: ChannelStream | None
    created: str | None
    subjects: tuple[str, ...]
    first_sequence: int | None
    last_sequence: int | None
    problem: str | None
    consumers: list[StreamStanding]
    left_out: int


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
        stream_channels.refuse_message(message)
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

    def read(tx: Tx) -> tuple[Follower, bool]:
        consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        return stream_positions.follower_of(tx, consumer), lanes.anyone_pushes(tx)

    follower, is_pushed = await runtime.database.read(read)
    return await _told(runtime, path["channelId"], follower, is_pushed)


async def _told(runtime: Runtime, channel_id: str, follower: Follower, is_pushed: bool) -> Response:
    standing: Standing | JobsError
    try:
        standing = await standing_of(streams_of(runtime.streams), follower.cursor)
    except JobsError as error:
        standing = error
    return reply(_shape(channel_id, follower, standing, is_pushed))


def _shape(
    channel_id: str, follower: Follower, found: Standing | JobsError, is_pushed: bool
) -> StreamStanding:
    cursor = follower.cursor
    problem = found.message if isinstance(found, JobsError) else None
    standing = Standing(acknowledged=cursor.acked_seq) if isinstance(found, JobsError) else found
    replay = cursor.replay
    return StreamStanding(
        channel=channel_id,
        consumer=follower.consumer_id,
        stream=cursor.stream,
        durable=cursor.durable,
        acknowledged=standing.acknowledged,
        delivered=standing.delivered,
        lag=standing.lag,
        under_way=standing.under_way,
        first_sequence=standing.first,
        last_sequence=standing.last,
        replay_sequence=None if replay is None else replay.sequence,
        replay_since=_at(None if replay is None else replay.since_us),
        problem=problem,
        paused=follower.paused,
        disabled_reason=follower.disabled_reason,
        failing_since=_at(follower.failing_since_us),
        waits_for=waits_for(follower, standing, problem, is_pushed=is_pushed),
        jobs={state.name: follower.jobs[state] for state in State},
    )


def _at(us: int | None) -> str | None:
    return None if us is None else rfc3339(us)


async def get_channel_standing(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    channel_id = request.path_params["channelId"]

    def read(tx: Tx) -> tuple[ChannelStream | None, list[Follower], int, bool]:
        channel = channels.find_channel(tx, channel_id)
        found = stream_positions.followers(tx, channel.seq, limits.STREAM_STANDINGS)
        n = len(tx.all("list_consumers_of_channel", channel_seq=channel.seq))
        return channel.stream, found, n, lanes.anyone_pushes(tx)

    stream, followers, n, is_pushed = await runtime.database.read(read)
    place: Place | None = None
    problem: str | None = None
    standings: list[Standing | JobsError] = []
    if stream is not None:
        try:
            streams = streams_of(runtime.streams)
            place, standings = await standings_of(streams, stream.name, followers)
        except JobsError as error:
            problem, standings = error.message, [error] * len(followers)
    shapes = [
        _shape(channel_id, follower, standing, is_pushed)
        for follower, standing in zip(followers, standings, strict=True)
    ]
    return reply(
        ChannelStanding(
            channel=channel_id,
            stream=stream,
            created=None if place is None else place.created,
            subjects=() if place is None else place.subjects,
            first_sequence=None if place is None else place.first,
            last_sequence=None if place is None else place.last,
            problem=problem,
            consumers=shapes,
            left_out=0 if stream is None else n - len(shapes),
        )
    )


async def replay(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, StreamReplayBody)
    path = request.path_params
    if body.sequence is not None and body.since is not None:
        raise bad_request("two_places", "a sequence, or a time, but not both", "since")
    wanted = stream_positions.Replay(
        sequence=body.sequence,
        since_us=None if body.since is None else moment_us(body.since, "since"),
    )
    channel_id, consumer_id = path["channelId"], path["consumerId"]

    def write(tx: Tx) -> tuple[Follower, bool]:
        stream_channels.ask_replay(tx, channel_id, consumer_id, wanted, tx.now_us())
        consumer = consumers.find_consumer(tx, channel_id, consumer_id)
        return stream_positions.follower_of(tx, consumer), lanes.anyone_pushes(tx)

    detail = f"sequence: {body.sequence}" if body.since is None else f"since: {body.since}"
    follower, is_pushed = await runtime.database.write(recorded(request, write, detail))
    runtime.metrics.add("jobs_events_total", kind="stream_replayed")
    return await _told(runtime, channel_id, follower, is_pushed)


_BASE: Final = "/v2/channel/{channelId}/consumer/{consumerId}/stream"

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v2/channel/{channelId}/stream",
        handler=get_channel_standing,
        summary="The stream in which a channel lives, and where its consumers are in it; no stream: it lives "
        "in the database",
        answers={200: ChannelStanding},
        tag="definitions",
        admin=True,
        legacy=False,
        errors=(401, 403, 404),
    ),
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
