"""What a job channel publishes again and again, which messages a consumer gets, how its endpoint answers."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final

from starlette.requests import Request

from ..answers import RefusedError, body_of, confirm, text_of
from ..job_paths import channel_path, consumer_path, quoted
from ..sources import Sources, understood

_WHO: Final = "the job service"
_SHOWN: Final = ("name", "type", "callback_url", "max_retries", "settings", "paused")
_SLOTS_MAX: Final = 2_000
_DAY_S: Final = 86_400
_MESSAGE: Final = ("content_type", "subject", "ordering_key")


async def schedules(sources: Sources, request: Request) -> Any:
    """The schedules of a channel."""
    found = await sources.jobs(f"{channel_path(request)}/schedules")
    return understood(lambda: {"schedules": found["schedules"]}, _WHO)


async def schedule(sources: Sources, request: Request) -> Any:
    """One schedule with its message and the times it comes at next."""
    return await sources.jobs(_path(request))


async def put_schedule(sources: Sources, request: Request) -> Any:
    """Make a schedule, or change what the request names of one that is there.

    Body: ``cron``, ``time_zone``, ``missed``, ``paused``, ``payload`` and what else a message has. With
    ``new``, one that is there is refused.
    """
    said = await body_of(request)
    found = await _found(sources, request)
    if said.get("new") and found:
        raise RefusedError(409, "exists", "there is a schedule of this name; its page changes it")
    wanted = {name: found[name] for name in ("cron", "time_zone", "missed", "paused") if found}
    wanted["message"] = dict(found["message"]) if found else {"payload": ""}
    for name in ("cron", "time_zone", "missed"):
        if name in said:
            wanted[name] = text_of(said, name)
    if "paused" in said:
        wanted["paused"] = said["paused"] is True
    if "payload" in said:
        wanted["message"].update(payload=text_of(said, "payload"), encoding=None)
    for name in _MESSAGE:
        if name in said:
            wanted["message"][name] = text_of(said, name) or None
    if not wanted["message"].get("content_type"):
        wanted["message"].pop("content_type", None)  # the service has a default
    for name in ("id", "idempotent", "scheduled_for"):
        wanted["message"].pop(name, None)  # each time has its own
    return await sources.jobs(_path(request), "PUT", json=wanted)


async def delete_schedule(sources: Sources, request: Request) -> Any:
    """Delete a schedule; what it has published stays."""
    confirm(await body_of(request), request.path_params["schedule"])
    return await sources.jobs(_path(request), "DELETE")


async def consumer(sources: Sources, request: Request) -> Any:
    """A consumer's settings, its filter among them."""
    found = await sources.jobs(consumer_path(request))
    return understood(lambda: {name: found[name] for name in _SHOWN}, _WHO)


async def calls(sources: Sources, request: Request) -> Any:
    """How a consumer's endpoint answered in the last day, by column, as a plot takes it: a point a slot."""
    found = await sources.jobs(f"{consumer_path(request)}/calls")
    return understood(lambda: _columns(found["slot_seconds"], found["slots"], time.time()), _WHO)


def _columns(
    slot_s: int, slots: list[dict[str, Any]], now_s: float
) -> dict[str, list[float | None]]:
    called = {
        int(datetime.fromisoformat(each["at"]).timestamp()): each for each in slots[-_SLOTS_MAX:]
    }
    if slot_s < _DAY_S / _SLOTS_MAX:
        raise ValueError("too many slots")
    last = max(called, default=round(now_s) // slot_s * slot_s)  # our clock may be another one
    last += max(0, round(now_s) - last) // slot_s * slot_s
    times = range(last - _DAY_S // slot_s * slot_s, last + 1, slot_s)
    columns: dict[str, list[float | None]] = {"time": [float(at) for at in times]}
    for name, without in (
        ("calls", 0),
        ("failed", 0),
        ("p50_seconds", None),
        ("p95_seconds", None),
    ):
        columns[name] = [called[at][name] if at in called else without for at in times]
    return columns


async def put_filter(sources: Sources, request: Request) -> Any:
    """Which messages a consumer gets from now on: ``subjects``, ``headers``, ``payload``; none is all."""
    said = await body_of(request)
    wanted = {
        "subjects": said.get("subjects", []),
        "headers": said.get("headers", {}),
        "payload": said.get("payload", {}),
    }
    patch = {"settings": {"filter": wanted}}
    found = await sources.jobs(consumer_path(request), "PATCH", json=patch)
    return understood(lambda: {"filter": found["settings"]["filter"]}, _WHO)


async def _found(sources: Sources, request: Request) -> dict[str, Any]:
    """The schedule as it is; empty where there is none."""
    listed = await schedules(sources, request)
    name = request.path_params["schedule"]
    there = understood(lambda: any(each["id"] == name for each in listed["schedules"]), _WHO)
    found: dict[str, Any] = await sources.jobs(_path(request)) if there else {}
    return found


def _path(request: Request) -> str:
    return f"{channel_path(request)}/schedule/{quoted(request, 'schedule')}"


_ONE: Final = "/api/job-schedules/{channel}/{schedule}"

ROUTES: Final = (
    ("GET", "/api/job-schedules/{channel}", schedules),
    ("GET", _ONE, schedule),
    ("PUT", _ONE, put_schedule),
    ("DELETE", _ONE, delete_schedule),
    ("GET", "/api/job-consumers/{channel}/{consumer}", consumer),
    ("GET", "/api/job-consumers/{channel}/{consumer}/calls", calls),
    ("PUT", "/api/job-consumers/{channel}/{consumer}/filter", put_filter),
)
