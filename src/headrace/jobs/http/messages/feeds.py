"""Feeds: up to where each has made jobs of its stream, and making jobs again from an earlier place."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import limits
from ...errors import bad_request
from ...models import rfc3339
from ...runtime.runtime import Runtime
from ...service import feeds
from ...service.feeds import Again, Feed
from ...store import Tx
from ..request.access import recorded
from ..request.endpoint import Endpoint, reply
from ..request.incoming import moment_us, read_json, require_admin

__all__ = ["ENDPOINTS"]


class FeedAgainBody(msgspec.Struct, forbid_unknown_fields=True):
    sequence: int | None = None
    since: str | None = None


class FeedShape(msgspec.Struct):
    channel: str
    feed: str
    stream: str
    filter: str | None
    group: str | None
    state: str
    problem: str | None
    sequence: int | None
    stored_at: str | None
    lag: int | None
    first_sequence: int | None
    last_sequence: int | None
    unfinished: int | None
    unfinished_max: int | None
    again_sequence: int | None
    again_since: str | None
    again_until: int | None
    seen_at: str | None


class FeedList(msgspec.Struct):
    feeds: list[FeedShape]


def _shape(feed: Feed, now: int) -> FeedShape:
    standing, again, place = feed.standing, feed.again, feed.place
    is_away = now - feed.seen_us > limits.FEED_AWAY_S * 1e6
    is_again = place.sequence < feed.again_until
    return FeedShape(
        channel=feed.channel_id,
        feed=feed.feed_id,
        stream=place.stream,
        filter=None if standing is None else standing.filter,
        group=None if standing is None else standing.group,
        state="away" if standing is None or is_away else standing.state,
        problem=None if standing is None else standing.problem,
        sequence=place.sequence if place.sequence >= 0 else None,
        stored_at=rfc3339(place.timestamp_ns // 1000) if place.timestamp_ns else None,
        lag=None if standing is None else standing.lag,
        first_sequence=None if standing is None else standing.first,
        last_sequence=None if standing is None else standing.last,
        unfinished=None if standing is None else standing.unfinished,
        unfinished_max=None if standing is None else standing.unfinished_max,
        again_sequence=None if again is None else again.sequence,
        again_since=None if again is None or again.since_us is None else rfc3339(again.since_us),
        again_until=feed.again_until if is_again else None,
        seen_at=rfc3339(feed.seen_us) if feed.seen_us else None,
    )


async def list_all(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    found, now = await runtime.database.read(lambda tx: (feeds.listed(tx), tx.now_us()))
    return reply(FeedList([_shape(feed, now) for feed in found]))


async def list_of_channel(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    channel_id = request.path_params["channelId"]
    found, now = await runtime.database.read(lambda tx: (feeds.listed(tx, channel_id), tx.now_us()))
    return reply(FeedList([_shape(feed, now) for feed in found]))


async def again(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, FeedAgainBody)
    path = request.path_params
    if body.sequence is not None and body.since is not None:
        raise bad_request("two_places", "a sequence, or a time, but not both", "since")
    wanted = Again(
        sequence=body.sequence,
        since_us=None if body.since is None else moment_us(body.since, "since"),
    )

    def write(tx: Tx) -> tuple[Feed, int]:
        now = tx.now_us()
        return feeds.ask_again(tx, path["channelId"], path["feedId"], wanted, now), now

    detail = f"sequence: {body.sequence}" if body.since is None else f"since: {body.since}"
    feed, now = await runtime.database.write(recorded(request, write, detail))
    runtime.metrics.add("jobs_events_total", kind="feed_again")
    return reply(_shape(feed, now))


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v2/feeds",
        handler=list_all,
        summary="All feeds: up to where each has made jobs of its stream, its lag, and its state",
        answers={200: FeedList},
        tag="operations",
        admin=True,
    ),
    Endpoint(
        method="GET",
        path="/v2/channel/{channelId}/feeds",
        handler=list_of_channel,
        summary="The feeds of a channel",
        answers={200: FeedList},
        tag="messages",
        admin=True,
    ),
    Endpoint(
        method="POST",
        path="/v2/channel/{channelId}/feed/{feedId}/again",
        handler=again,
        summary="Make jobs again of what the stream still has, from a sequence or a time on",
        body=FeedAgainBody,
        answers={200: FeedShape},
        tag="messages",
        admin=True,
        scopes=("operate",),
        audited=True,
        errors=(409,),
    ),
)
