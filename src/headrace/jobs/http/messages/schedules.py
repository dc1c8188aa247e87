"""Schedules of a channel: what is published again and again, by cron."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import limits
from ...errors import bad_request
from ...matching.filters import SUBJECT
from ...models import payload_fields, rfc3339
from ...runtime.runtime import Runtime
from ...schedules import parse_times
from ...service.definitions import channels
from ...service.publishing import scheduling
from ...service.publishing.scheduling import NewSchedule
from ...store import Row, Tx
from .. import shapes
from ..request.access import recorded
from ..request.endpoint import Endpoint, reply
from ..request.incoming import read_json, require_admin
from ..shapes import BatchMessage
from .publishing import At, message_of

__all__ = ["ENDPOINTS"]


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    cron: str
    message: BatchMessage
    time_zone: str = "UTC"
    missed: str = "once"
    paused: bool = False


class ScheduleShape(msgspec.Struct):
    id: str
    cron: str
    time_zone: str
    missed: str
    paused: bool
    next_at: str | None
    last_at: str | None


class Schedules(msgspec.Struct):
    schedules: list[ScheduleShape]


class ScheduleDetail(ScheduleShape):
    message: BatchMessage
    upcoming: list[str]


_ANEW: Final = ("id", "idempotent", "scheduled_for", "unique")  # are each time's own


async def put_schedule(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    bytes_max = limits.DOCUMENT_BYTES_MAX + 2 * runtime.options.payload_bytes_max
    body = await read_json(request, ScheduleBody, bytes_max=bytes_max)
    for name in _ANEW:
        if getattr(body.message, name):
            raise bad_request("not_here", "each time has its own", f"message.{name}")
    given = NewSchedule(
        cron=body.cron,
        time_zone=body.time_zone,
        missed=body.missed,
        paused=body.paused,
        message=message_of("message", body.message),
    )
    path = request.path_params

    def write(tx: Tx) -> tuple[Row, bool, int]:
        now = tx.now_us()
        with At("message"):
            scheduling.check_of(given.message, runtime.options, now)
        row, is_new = scheduling.put_schedule(tx, path["channelId"], path["scheduleId"], given, now)
        return row, is_new, now

    row, is_new, now = await runtime.database.write(recorded(request, write))
    return reply(_detail(row, now), 201 if is_new else 200)


async def get_schedule(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path = request.path_params

    def read(tx: Tx) -> tuple[Row, int]:
        channel = channels.find_channel(tx, path["channelId"])
        return scheduling.find_schedule(tx, channel.seq, path["scheduleId"]), tx.now_us()

    return reply(_detail(*await runtime.database.read(read)))


async def list_schedules(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)

    def read(tx: Tx) -> Any:
        channel = channels.find_channel(tx, request.path_params["channelId"])
        return scheduling.list_schedules(tx, channel.seq)

    rows = await runtime.database.read(read)
    return reply(Schedules([ScheduleShape(**_shown(row)) for row in rows]))


async def delete_schedule(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path = request.path_params

    def write(tx: Tx) -> None:
        channel = channels.find_channel(tx, path["channelId"])
        scheduling.delete_schedule(tx, channel.seq, path["scheduleId"])

    await runtime.database.write(recorded(request, write))
    return Response(status_code=204)


def _shown(row: Row) -> dict[str, Any]:
    next_us, last_us = row["next_us"], row["last_us"]
    return {
        "id": row["schedule_id"],
        "cron": row["cron"],
        "time_zone": row["time_zone"],
        "missed": row["missed"],
        "paused": bool(row["paused"]),
        "next_at": None if next_us is None or row["paused"] else rfc3339(next_us),
        "last_at": None if last_us is None else rfc3339(last_us),
    }


def _detail(row: Row, now: int) -> ScheduleDetail:
    payload, encoding = payload_fields(row["payload"])
    headers = json.loads(row["headers"])
    subject = headers.pop(SUBJECT, None)
    message = shapes.BatchMessage(
        payload=payload,
        encoding=encoding,
        content_type=row["content_type"],
        priority=row["priority"],
        ordering_key=row["ordering_key"],
        subject=subject,
        headers=headers,
    )
    times = (
        []
        if row["paused"]
        else parse_times(row["cron"], row["time_zone"]).upcoming(now, limits.SCHEDULE_UPCOMING)
    )
    return ScheduleDetail(**_shown(row), message=message, upcoming=[rfc3339(us) for us in times])


_LIST: Final = "/v2/channel/{channelId}/schedules"
_ONE: Final = "/v2/channel/{channelId}/schedule/{scheduleId}"

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path=_LIST,
        handler=list_schedules,
        summary="The schedules of a channel, by id",
        answers={200: Schedules},
        tag="messages",
        admin=True,
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        handler=get_schedule,
        summary="A schedule with its message and the times that come",
        answers={200: ScheduleDetail},
        tag="messages",
        admin=True,
        errors=(400,),
    ),
    Endpoint(
        method="PUT",
        path=_ONE,
        handler=put_schedule,
        summary="Publish a message again and again, by cron; replaces the schedule of this id",
        body=ScheduleBody,
        answers={201: ScheduleDetail, 200: ScheduleDetail},
        tag="messages",
        admin=True,
        audited=True,
        errors=(409,),
    ),
    Endpoint(
        method="DELETE",
        path=_ONE,
        handler=delete_schedule,
        summary="Delete a schedule; what it has published stays",
        answers={204: None},
        tag="messages",
        admin=True,
        audited=True,
    ),
)
