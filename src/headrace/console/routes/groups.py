"""Partitioned consumer groups: which there are, and partition → member → instance → lag of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from starlette.requests import Request

from ...api.times import format_time
from ...groups import elastic, names, static
from ...groups.lag import measure
from ...groups.look import GroupLag, Pin
from ...groups.records import ElasticGroup, StaticGroup
from ..answers import RefusedError, body_of, text_of
from ..sources import Sources


async def table(sources: Sources, request: Request) -> Any:
    """All groups of all streams."""
    del request
    found: list[dict[str, Any]] = []
    for stream in sorted(await _streams(sources)):
        groups: Iterable[StaticGroup | ElasticGroup] = [
            *await elastic.list(sources.js, stream),
            *await static.list(sources.js, stream),
        ]
        found += [
            {
                "stream": stream,
                "group": group.name,
                "kind": "elastic" if isinstance(group, ElasticGroup) else "static",
                "members": list(group.assignment()),
                "partitions": group.max_members,
                "layout": group.layout,
            }
            for group in groups
        ]
    return {"groups": found}


async def _streams(sources: Sources) -> set[str]:
    """The streams that have groups: the first token of a record's key."""
    there = sources.watcher.look.streams
    streams: set[str] = set()
    for bucket in (names.STATIC_BUCKET, names.ELASTIC_BUCKET):
        if f"KV_{bucket}" in there:
            keys = await (await sources.js.key_value(bucket)).keys()
            streams.update(key.partition(".")[0] for key in keys)
    return streams & there.keys()


async def one(sources: Sources, request: Request) -> Any:
    """One look at a group."""
    kind = _kind(request)
    group = await kind.get(sources.js, request.path_params["stream"], request.path_params["group"])
    return _document(await measure(sources.js, group))


async def step_down(sources: Sources, request: Request) -> Any:
    """Let another instance of a member take over."""
    member = text_of(await body_of(request), "member")
    kind = _kind(request)
    path = request.path_params
    await kind.step_down(sources.js, path["stream"], path["group"], member)
    return {}


def _kind(request: Request) -> Any:
    found = {"elastic": elastic, "static": static}.get(request.path_params["kind"])
    if found is None:
        raise RefusedError(404, "not_found", "a group is static or elastic")
    return found


def _document(look: GroupLag) -> dict[str, Any]:
    return {
        "stream": look.stream,
        "group": look.group,
        "kind": look.kind,
        "layout": look.layout,
        "revision": look.revision,
        "lag": look.lag,
        "waiting": look.waiting,
        "source_lag": look.source_lag,
        "oldest_s": look.oldest_s,
        "partitions": [
            {
                "partition": each.partition,
                "member": each.member,
                "waiting": each.waiting,
                "oldest_s": each.oldest_s,
                **_pin(each.pin),
            }
            for each in look.partitions
        ],
        "members": [
            {
                "member": each.member,
                "partitions": list(each.partitions),
                "listed": each.listed,
                "instances": each.instances,
                "live": each.is_live,
                "lag": each.lag,
                "unacknowledged": each.unacknowledged,
                "redelivered": each.redelivered,
                "handled": each.handled,
                **_pin(each.pin),
            }
            for each in look.members
        ],
    }


def _pin(pin: Pin | None) -> dict[str, Any]:
    if pin is None:
        return {"instance": "", "since": ""}
    return {"instance": pin.client_id, "since": format_time(pin.since_ns)}


ROUTES: Final = (
    ("GET", "/api/groups", table),
    ("GET", "/api/groups/{kind}/{stream}/{group}", one),
    ("POST", "/api/groups/{kind}/{stream}/{group}/step-down", step_down),
)
