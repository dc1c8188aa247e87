"""Partitioned consumer groups: which there are, and partition → member → instance → lag of one."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ...api.times import format_time
from ...groups import elastic, static
from ...groups.lag import measure
from ...groups.progress import GroupLag, Pin
from ..answers import RefusedError, body_of, text_of
from ..sources import Sources


async def table(sources: Sources, request: Request) -> Any:
    """All groups of all streams, as of the newest look."""
    del request
    watcher = sources.watcher
    return {
        "groups": [
            {
                "stream": look.stream,
                "group": look.group,
                "kind": look.kind,
                "members": [each.member for each in look.members if each.listed],
                "partitions": len(look.partitions),
                "layout": look.layout,
                "lag": look.lag,
            }
            for look in watcher.look.groups.values()
        ],
        "problem": watcher.groups_problem,
    }


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
        "waiting": look.group_lag,
        "source_lag": look.source_lag,
        "oldest_s": look.oldest_s,
        "partitions": [
            {
                "partition": each.partition,
                "member": each.member,
                "waiting": each.lag,
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
