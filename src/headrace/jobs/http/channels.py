"""Channels by Headrace's own routes: what hangs on one, and draining it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from ..models import rfc3339
from ..runtime import Runtime
from ..service import definitions, removing
from ..states import State
from ..store import Tx
from . import shapes
from .endpoint import Endpoint, reply
from .incoming import read_json, require_admin

__all__ = ["ENDPOINTS"]


async def get_channel(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    channel_id = request.path_params["channelId"]

    def read(tx: Tx) -> tuple[definitions.Definition, removing.Hanging]:
        channel = definitions.find_channel(tx, channel_id)
        return channel, removing.hanging_on(tx, channel.seq)

    channel, hanging = await runtime.database.read(read)
    shape = shapes.ChannelDetail(
        id=channel.public_id,
        name=channel.name,
        draining=channel.draining,
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
    await runtime.database.write(
        lambda tx: definitions.drain_channel(tx, channel_id, body.draining, tx.now_us())
    )
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
        legacy=False,
        errors=(401, 403, 404),
    ),
    Endpoint(
        method="PATCH",
        path=_PATH,
        handler=patch_channel,
        summary="Drain a channel: it takes no more messages, and delivers what it has; or end that",
        body=shapes.ChannelPatch,
        answers={200: shapes.ChannelDetail},
        tag="definitions",
        admin=True,
        legacy=False,
        errors=(400, 401, 403, 404, 413),
    ),
)
