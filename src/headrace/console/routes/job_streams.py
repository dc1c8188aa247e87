"""A job channel that lives in a stream: where its consumers are in it; paused, resumed, delivering again."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ..answers import body_of, confirm, number_of, text_of
from ..job_paths import channel_path, consumer_path
from ..sources import Sources, understood

_WHO: Final = "the job service"
_STREAM: Final = (
    *("channel", "stream", "subjects", "first_sequence", "last_sequence"),
    *("problem", "left_out"),
)
_CONSUMER: Final = (
    *("consumer", "durable", "acknowledged", "delivered", "lag", "under_way", "problem"),
    *("replay_sequence", "replay_since", "paused", "disabled_reason", "failing_since"),
    *("waits_for", "jobs"),
)


async def channel(sources: Sources, request: Request) -> Any:
    """The name of the stream in which a channel lives; null: it lives in the database."""
    found = await sources.jobs(channel_path(request))
    return understood(lambda: {"stream": found["stream"] and found["stream"]["name"]}, _WHO)


async def standing(sources: Sources, request: Request) -> Any:
    """The stream, and the place of each consumer. ``here``: whether this server is the one that has it."""
    found = await sources.jobs(f"{channel_path(request)}/stream")

    def read() -> dict[str, Any]:
        told = {name: found[name] for name in _STREAM}
        told["consumers"] = [
            {name: each[name] for name in _CONSUMER} for each in found["consumers"]
        ]
        # The service's broker may be another one, also with a stream of this name.
        name = found["stream"] and found["stream"]["name"]
        seen = sources.watcher.look.streams.get(name) if name else None
        told["here"] = seen is not None and seen.created == found["created"]
        return told

    return understood(read, _WHO)


async def pause(sources: Sources, request: Request) -> Any:
    """Call the endpoint no more; messages wait in the stream."""
    return await _change(sources, request, paused=True)


async def resume(sources: Sources, request: Request) -> Any:
    """Go on where it is."""
    return await _change(sources, request, paused=False)


async def enable(sources: Sources, request: Request) -> Any:
    """Call an endpoint again that was given up."""
    return await _change(sources, request, enable=True)


async def _change(sources: Sources, request: Request, **patch: bool) -> Any:
    await sources.jobs(consumer_path(request), "PATCH", json=patch)
    return {}


async def replay(sources: Sources, request: Request) -> Any:
    """Deliver again from a ``sequence``, or from a time ``since`` (RFC 3339), if its name is typed."""
    said = await body_of(request)
    confirm(said, request.path_params["consumer"])
    wanted: dict[str, Any] = {}
    if "sequence" in said:
        wanted["sequence"] = number_of(said, "sequence")
    if "since" in said:
        wanted["since"] = text_of(said, "since")
    await sources.jobs(f"{consumer_path(request)}/stream/replay", "POST", json=wanted)
    return {}


_ONE: Final = "/api/job-streams/{channel}/{consumer}"

ROUTES: Final = (
    ("GET", "/api/job-channels/{channel}", channel),
    ("GET", "/api/job-streams/{channel}", standing),
    ("POST", f"{_ONE}/replay", replay),
    ("POST", f"{_ONE}/pause", pause),
    ("POST", f"{_ONE}/resume", resume),
    ("POST", f"{_ONE}/enable", enable),
)
