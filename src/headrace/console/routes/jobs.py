"""Jobs: queues, dead letters, jobs found, sent back, cancelled; schedules, filters, API keys, audit log.

The console is a client of the job service (``--jobs URL``), with its admin token, which never reaches the
browser. What that token may not do, the service refuses in its own words.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request

from ..answers import RefusedError, body_of, confirm, number_of, text_of
from ..sources import Sources, understood

_WHO: Final = "the job service"


def quoted(request: Request, name: str) -> str:
    """A name of the path, as a part of another path."""
    return quote(request.path_params[name], safe="")


def channel_path(request: Request) -> str:
    """The path of the channel that is asked about."""
    return f"/v2/channel/{quoted(request, 'channel')}"


def consumer_path(request: Request) -> str:
    """The path of the consumer that is asked about."""
    return f"{channel_path(request)}/consumer/{quoted(request, 'consumer')}"


async def table(sources: Sources, request: Request) -> Any:
    """Every consumer with its counts, the feeds, and the newest events."""
    del request
    status = await sources.jobs("/_status")
    events = await sources.jobs("/v2/events")
    feeds = await sources.jobs("/v2/feeds")
    return understood(
        lambda: {
            "status": status,
            "events": events["events"],
            "feeds": [{name: each[name] for name in _FEED} for each in feeds["feeds"]],
        },
        _WHO,
    )


async def feed_again(sources: Sources, request: Request) -> Any:
    """Make jobs again from a ``sequence``, or a time ``since`` (RFC 3339), if the feed's name is typed."""
    said = await body_of(request)
    confirm(said, request.path_params["feed"])
    wanted: dict[str, Any] = {}
    if "sequence" in said:
        wanted["sequence"] = number_of(said, "sequence")
    if "since" in said:
        wanted["since"] = text_of(said, "since")
    path = f"{channel_path(request)}/feed/{quoted(request, 'feed')}/again"
    await sources.jobs(path, "POST", json=wanted)
    return {}


async def dead(sources: Sources, request: Request) -> Any:
    """A page of a consumer's dead jobs, the newest first."""
    cursor = {
        name: request.query_params[name]
        for name in ("next", "previous")
        if name in request.query_params
    }
    path = _path(request) + "/dlq" + (f"?{urlencode(cursor)}" if cursor else "")
    page = await sources.jobs(path)
    return understood(
        lambda: {
            "jobs": [{**each, "job": _last(each["JobRequeueURL"])} for each in page["DeadJobs"]],
            "pages": {name: _cursor(url, name) for name, url in page["Pages"].items()},
        },
        _WHO,
    )


async def one(sources: Sources, request: Request) -> Any:
    """A job with its attempts."""
    return await sources.jobs(f"/v2{_path(request)}/job/{quoted(request, 'job')}")


async def find(sources: Sources, request: Request) -> Any:
    """The message of a channel with this id, and its jobs."""
    message = request.query_params.get("message", "")
    if not message:
        raise RefusedError(400, "not_accepted", "give the id of a message")
    channel = quoted(request, "channel")
    return await sources.jobs(f"/channel/{channel}/message/{quote(message, safe='')}")


async def listed(sources: Sources, request: Request) -> Any:
    """A page of the jobs of a channel, of any consumer: those that match, the newest first."""
    asked = request.query_params
    given = [(name, value) for name, value in asked.multi_items() if name in _FILTERS]
    query = f"?{urlencode(given)}" if given else ""
    page = await sources.jobs(f"{channel_path(request)}/jobs{query}")
    return understood(
        lambda: {
            "jobs": page["jobs"],
            "pages": {name: _cursor(url, name) for name, url in page["pages"].items()},
        },
        _WHO,
    )


async def cancel(sources: Sources, request: Request) -> Any:
    """Cancel one job; or all that match, if the channel's name is typed. Answers how many."""
    body = await body_of(request)
    if "job" in body:
        wanted: dict[str, Any] = {"job": text_of(body, "job")}
    else:
        confirm(body, request.path_params["channel"])
        wanted = {name: body[name] for name in _CANCELLED if name in body}
    path = f"{channel_path(request)}/jobs/cancel"
    return await sources.jobs(path, "POST", json=wanted)


async def replay(sources: Sources, request: Request) -> Any:
    """Hand out delivered and dead jobs again: of messages, or of a time. Answers how many.

    A body without a channel's name typed is for one message of one consumer, as the page of a job has it.
    """
    said = await body_of(request)
    wanted = {name: said[name] for name in _REPLAYED if name in said}
    one = len(wanted.get("messages") or ()) == 1 and "consumer" in wanted
    if not one and not wanted.get("dry_run"):
        confirm(said, request.path_params["channel"])
    path = f"{channel_path(request)}/replay"
    return await sources.jobs(path, "POST", json=wanted)


async def requeue(sources: Sources, request: Request) -> Any:
    """Send one dead job back, with all its retries."""
    path = f"{_path(request)}/job/{quoted(request, 'job')}/requeue-dead-job"
    await sources.jobs(path, "POST")
    return {}


async def requeue_all(sources: Sources, request: Request) -> Any:
    """Send all dead jobs of a consumer back."""
    confirm(await body_of(request), request.path_params["consumer"])
    await sources.jobs(_path(request) + "/dlq", "POST", data={"requeue": ""})
    return {}


def _path(request: Request) -> str:
    return f"/channel/{quoted(request, 'channel')}/consumer/{quoted(request, 'consumer')}"


def _last(url: str) -> str:
    """The job's id in ``…/job/ID/requeue-dead-job``."""
    return url.rstrip("/").split("/")[-2]


def _cursor(url: str, name: str) -> str:
    return url.partition(f"{name}=")[2].partition("&")[0]


_FILTERS: Final = (
    "consumer",
    "message",
    "state",
    "older_than_seconds",
    "payload",
    "next",
    "previous",
)
_FEED: Final = (
    *("channel", "feed", "stream", "filter", "state", "problem", "sequence", "lag"),
    *("unfinished", "unfinished_max", "again_sequence", "again_since", "again_until"),
)
_CANCELLED: Final = ("consumer", "message", "states", "older_than_seconds", "payload")
_REPLAYED: Final = (
    "consumer",
    "messages",
    "states",
    "since",
    "until",
    "payload",
    "rate_per_s",
    "dry_run",
)
_ONE: Final = "/api/jobs/{channel}/{consumer}"


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
    return await sources.jobs(_schedule_path(request))


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
    return await sources.jobs(_schedule_path(request), "PUT", json=wanted)


async def delete_schedule(sources: Sources, request: Request) -> Any:
    """Delete a schedule; what it has published stays."""
    confirm(await body_of(request), request.path_params["schedule"])
    return await sources.jobs(_schedule_path(request), "DELETE")


async def consumer(sources: Sources, request: Request) -> Any:
    """A consumer's settings, its filter among them."""
    found = await sources.jobs(consumer_path(request))
    return understood(lambda: {name: found[name] for name in _SHOWN}, _WHO)


async def calls(sources: Sources, request: Request) -> Any:
    """Calls of a consumer's endpoint in the last day, by column, as a plot takes it: a point a slot."""
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
    """Change what a consumer gets from now on: ``subjects``, ``headers``, ``payload``; none is all."""
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
    found: dict[str, Any] = await sources.jobs(_schedule_path(request)) if there else {}
    return found


def _schedule_path(request: Request) -> str:
    return f"{channel_path(request)}/schedule/{quoted(request, 'schedule')}"


_SCHEDULE: Final = "/api/job-schedules/{channel}/{schedule}"


_CURSORS: Final = ("next", "previous")


async def keys(sources: Sources, request: Request) -> Any:
    """A page of the API keys, newest first; none is shown itself."""
    return await _page(sources, request, "/v2/keys", "keys", _CURSORS)


async def make_key(sources: Sources, request: Request) -> Any:
    """Make a key. Body: ``name``, ``scopes``, ``channels`` (none is all), ``expires_in_seconds``.

    The answer has the key itself, once.
    """
    said = await body_of(request)
    wanted: dict[str, Any] = {
        "name": text_of(said, "name"),
        "scopes": _texts(said, "scopes"),
        "channels": _texts(said, "channels") or ["*"],
    }
    if "expires_in_seconds" in said:
        wanted["expires_in_seconds"] = said["expires_in_seconds"]
    return await sources.jobs("/v2/keys", "POST", json=wanted)


async def revoke_key(sources: Sources, request: Request) -> Any:
    """Revoke a key; its id has to be typed."""
    name = request.path_params["key"]
    confirm(await body_of(request), name)
    return await sources.jobs(f"/v2/key/{quote(name, safe='')}", "DELETE")


async def audit(sources: Sources, request: Request) -> Any:
    """A page of who changed what, newest first: of a key, of a channel, or all of it."""
    return await _page(sources, request, "/v2/audit", "entries", ("key", "channel", *_CURSORS))


async def _page(
    sources: Sources, request: Request, path: str, what: str, accepted: tuple[str, ...]
) -> Any:
    asked = request.query_params
    given = {name: asked[name] for name in accepted if asked.get(name)}
    page = await sources.jobs(path + (f"?{urlencode(given)}" if given else ""))
    return understood(
        lambda: {
            what: page[what],
            "pages": {
                name: url.partition(f"{name}=")[2].partition("&")[0]
                for name, url in page["pages"].items()
            },
        },
        _WHO,
    )


def _texts(document: dict[str, Any], name: str) -> list[str]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise RefusedError(400, "not_accepted", f"{name} has to be a list of texts")
    return found


ROUTES: Final = (
    ("GET", "/api/jobs", table),
    ("GET", "/api/jobs/{channel}/find", find),
    ("GET", "/api/jobs/{channel}/list", listed),
    ("POST", "/api/jobs/{channel}/cancel", cancel),
    ("POST", "/api/jobs/{channel}/replay", replay),
    ("POST", "/api/job-feeds/{channel}/{feed}/again", feed_again),
    ("GET", f"{_ONE}/dead", dead),
    ("POST", f"{_ONE}/requeue", requeue_all),
    ("GET", f"{_ONE}/job/{{job}}", one),
    ("POST", f"{_ONE}/job/{{job}}/requeue", requeue),
    ("GET", "/api/job-schedules/{channel}", schedules),
    ("GET", _SCHEDULE, schedule),
    ("PUT", _SCHEDULE, put_schedule),
    ("DELETE", _SCHEDULE, delete_schedule),
    ("GET", "/api/job-consumers/{channel}/{consumer}", consumer),
    ("GET", "/api/job-consumers/{channel}/{consumer}/calls", calls),
    ("PUT", "/api/job-consumers/{channel}/{consumer}/filter", put_filter),
    ("GET", "/api/job-keys", keys),
    ("POST", "/api/job-keys", make_key),
    ("DELETE", "/api/job-keys/{key}", revoke_key),
    ("GET", "/api/job-audit", audit),
)
