"""Jobs: queues, dead letters, finding jobs, one with its attempts; sent back, replayed, cancelled.

The console is a client of the job service (``--jobs URL``), with its admin token, which never reaches the
browser. Sending dead jobs back needs one, and cancelling, where the service has one.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request

from ..answers import RefusedError, body_of, confirm, number_of, text_of
from ..job_paths import channel_path, quoted
from ..sources import Sources, understood


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


_WHO: Final = "the job service"
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
)
