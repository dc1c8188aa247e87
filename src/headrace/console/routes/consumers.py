"""Consumers and partitioned consumer groups."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ...api.base import to_wire
from ...api.consumers import ConsumerConfig
from ...api.times import format_time
from ...client.jetstream.consumer import Consumer
from ...groups import elastic, static
from ...groups.lag import measure
from ...groups.progress import GroupLag, Pin
from ..answers import RefusedError, body_of, changes_between, config_of, confirm, number_of, text_of
from ..look import consumer_row
from ..sources import Sources

PAUSE_S_MAX: Final = 365 * 86_400


async def table(sources: Sources, request: Request) -> Any:
    """The consumers that were looked at; of one stream with ``stream=``."""
    watcher = sources.watcher
    rows = watcher.consumer_rows(request.query_params.get("stream", ""))
    return {"consumers": rows, "unseen": watcher.look.unseen, "error": watcher.error}


async def one(sources: Sources, request: Request) -> Any:
    """A consumer: numbers, configuration, pins."""
    info = await (await _consumer(sources, request)).info()
    watcher = sources.watcher
    return {
        "row": consumer_row(info, watcher.before, watcher.look.at_s),
        "created": info.created,
        "config": to_wire(info.config),
        "delivered": to_wire(info.delivered),
        "ack_floor": to_wire(info.ack_floor),
        "pause_remaining_s": info.pause_remaining,
    }


async def create(sources: Sources, request: Request) -> Any:
    """Make a consumer. Body: ``config``, as the JetStream API has it."""
    config = config_of(await body_of(request), ConsumerConfig)
    if not (config.durable_name or config.name):
        raise RefusedError(400, "not_accepted", "a consumer needs a name here")
    stream = await sources.js.stream(request.path_params["stream"])
    consumer = await stream.create_consumer(config)
    await sources.watcher.refresh()
    return {"name": consumer.name}


async def change(sources: Sources, request: Request) -> Any:
    """Change a consumer. Body: the whole ``config``; ``dry_run`` answers what would change."""
    said = await body_of(request)
    after = config_of(said, ConsumerConfig)
    name = request.path_params["consumer"]
    if name not in (after.durable_name, after.name):
        raise RefusedError(400, "not_accepted", "the name of a consumer does not change here")
    consumer = await _consumer(sources, request)
    if said.get("dry_run") is True:
        changes = changes_between((await consumer.info()).config, after)
        return {"changes": changes, "loss": "", "removes": False}
    await consumer.update(after)
    return await _done(sources)


async def pause(sources: Sources, request: Request) -> Any:
    """Deliver nothing for ``seconds``."""
    seconds = number_of(await body_of(request), "seconds")
    if not 1 <= seconds <= PAUSE_S_MAX:
        raise RefusedError(400, "not_accepted", f"seconds: accepted are 1 to {PAUSE_S_MAX}")
    await (await _consumer(sources, request)).pause(float(seconds))
    return await _done(sources)


async def resume(sources: Sources, request: Request) -> Any:
    """Deliver again."""
    await (await _consumer(sources, request)).resume()
    return await _done(sources)


async def unpin(sources: Sources, request: Request) -> Any:
    """Let another client of a priority group be pinned."""
    group = text_of(await body_of(request), "group")
    await (await _consumer(sources, request)).unpin(group)
    return await _done(sources)


async def reset(sources: Sources, request: Request) -> Any:
    """Begin again at ``sequence``, or at the ack floor with 0."""
    said = await body_of(request)
    confirm(said, request.path_params["consumer"])
    await (await _consumer(sources, request)).reset(number_of(said, "sequence"))
    return await _done(sources)


async def delete(sources: Sources, request: Request) -> Any:
    """Delete a consumer; the stream keeps its messages, unless only this consumer held them."""
    stream, name = request.path_params["stream"], request.path_params["consumer"]
    confirm(await body_of(request), name)
    await sources.js.delete_consumer(stream, name)
    return await _done(sources)


async def _consumer(sources: Sources, request: Request) -> Consumer:
    return await sources.js.consumer(request.path_params["stream"], request.path_params["consumer"])


async def _done(sources: Sources) -> dict[str, Any]:
    await sources.watcher.refresh()
    return {}


_ONE: Final = "/api/streams/{stream}/consumers/{consumer}"


async def groups(sources: Sources, request: Request) -> Any:
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


async def one_group(sources: Sources, request: Request) -> Any:
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
    ("GET", "/api/consumers", table),
    ("POST", "/api/streams/{stream}/consumers", create),
    ("GET", _ONE, one),
    ("PUT", _ONE, change),
    ("POST", f"{_ONE}/pause", pause),
    ("POST", f"{_ONE}/resume", resume),
    ("POST", f"{_ONE}/unpin", unpin),
    ("POST", f"{_ONE}/reset", reset),
    ("DELETE", _ONE, delete),
    ("GET", "/api/groups", groups),
    ("GET", "/api/groups/{kind}/{stream}/{group}", one_group),
    ("POST", "/api/groups/{kind}/{stream}/{group}/step-down", step_down),
)
