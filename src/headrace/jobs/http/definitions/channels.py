"""Channels by Headrace's own routes: what hangs on one, and draining it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ...models import rfc3339
from ...runtime.runtime import Runtime
from ...service import removing
from ...service.definitions import channels, definitions
from ...states import State
from ...store import Tx
from .. import shapes
from ..request.access import recorded, require_scope
from ..request.endpoint import Endpoint, reply
from ..request.incoming import read_json, require_admin

__all__ = ["ENDPOINTS"]


async def get_channel(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    channel_id = request.path_params["channelId"]

    def read(tx: Tx) -> tuple[definitions.Definition, removing.Hanging, str | None]:
        channel = channels.find_channel(tx, channel_id)
        told = channels.events_channel_of(tx, channel.seq)
        return channel, removing.hanging_on(tx, channel.seq), told

    channel, hanging, told = await runtime.database.read(read)
    shape = shapes.ChannelDetail(
        id=channel.public_id,
        name=channel.name,
        draining=channel.draining,
        events_channel=told,
        changed_at=rfc3339(channel.updated_us),
        consumers=hanging.consumers,
        messages=hanging.messages,
        scheduled=hanging.scheduled,
        jobs={state.name: hanging.jobs[state] for state in State},
    )
    return reply(shape, headers={"ETag": f'"{channel.updated_us}"'})


async def patch_channel(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    body = await read_json(request, shapes.ChannelPatch)
    channel_id = request.path_params["channelId"]
    if body.events_channel is not None:
        require_scope(request, "admin", channel_id)
        require_scope(request, "admin", body.events_channel or channel_id)

    def write(tx: Tx) -> None:
        if body.draining is not None:
            channels.drain_channel(tx, channel_id, body.draining, tx.now_us())
        if body.events_channel is not None:
            told = body.events_channel or None
            channels.tell_channel(tx, channel_id, told, tx.now_us())

    wanted = {"draining": body.draining, "events_channel": body.events_channel}
    detail = ", ".join(f"{name}: {value}" for name, value in wanted.items() if value is not None)
    await runtime.database.write(recorded(request, write, detail))
    return await get_channel(runtime, request)


_PATH: Final = "/v2/channel/{channelId}"

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=_PATH,
        handler=get_channel,
        summary="A channel with what hangs on it",
        answers={200: shapes.ChannelDetail},
        tag="definitions",
        admin=True,
    ),
    Endpoint(
        method="PATCH",
        path=_PATH,
        handler=patch_channel,
        summary="Drain a channel, or end that; name the channel that is told what happens to its jobs",
        body=shapes.ChannelPatch,
        answers={200: shapes.ChannelDetail},
        tag="definitions",
        admin=True,
        scopes=("operate",),
        audited=True,
        errors=(409,),
    ),
)
