"""Producers, channels and consumers, by the specification's form routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ... import ids, limits
from ...errors import bad_request
from ...models import Consumer, ConsumerSettings, http_date, rfc3339
from ...push.guard import Guard, RefusedAddressError
from ...runtime.runtime import Runtime
from ...service import removing
from ...service.definitions import channels, consumers, definitions
from ...service.page_reads import Page
from ...signature import new_secret
from ...store import Tx
from .. import shapes
from ..request.access import recorded
from ..request.endpoint import CURSORS, Endpoint, Parameter, reply
from ..request.incoming import (
    flag,
    list_links,
    number_between,
    page_of,
    precondition,
    read_form,
    require_admin,
)

__all__ = ["ENDPOINTS", "refuse_inside"]

_FORM: Final = (
    Parameter("token", "kept or made when absent"),
    Parameter("name", "the id when absent"),
)
_CONSUMER_FORM: Final = (
    *_FORM,
    Parameter("callbackUrl", "absolute; needed for push"),
    Parameter("type", "push or pull; push for a new consumer, kept by an update"),
    Parameter("maxRetries", "retries before a job is DEAD", type="integer"),
)


def _validators(updated_us: int) -> dict[str, str]:
    return {"Last-Modified": http_date(updated_us), "ETag": f'"{updated_us}"'}


async def _list(
    runtime: Runtime, request: Request, query: str, link: Callable[[Any], str], **scope: str
) -> Response:
    require_admin(runtime, request)
    path = request.url.path
    name = f"{query} {scope}"

    def read(tx: Tx) -> Page:
        values = {}
        if "channel" in scope:
            values["channel_seq"] = channels.find_channel(tx, scope["channel"]).seq
        return page_of(tx, runtime, request, query, name, **values)

    found = await runtime.database.read(read)
    return reply(shapes.Listing([link(row) for row in found.rows], list_links(path, found)))


async def list_producers(runtime: Runtime, request: Request) -> Response:
    return await _list(runtime, request, "producers", lambda row: f"/producer/{row['producer_id']}")


async def list_channels(runtime: Runtime, request: Request) -> Response:
    return await _list(runtime, request, "channels", lambda row: f"/channel/{row['channel_id']}")


async def list_consumers(runtime: Runtime, request: Request) -> Response:
    channel_id = request.path_params["channelId"]
    return await _list(
        runtime,
        request,
        "consumers",
        lambda row: f"/channel/{channel_id}/consumer/{row['consumer_id']}",
        channel=channel_id,
    )


def _producer(found: definitions.Definition) -> Response:
    shape = shapes.ProducerShape(
        found.public_id, found.name, found.token or "", rfc3339(found.updated_us)
    )
    return reply(shape, headers=_validators(found.updated_us))


def _channel(found: definitions.Definition) -> Response:
    base = f"/channel/{found.public_id}"
    shape = shapes.ChannelShape(
        found.public_id,
        found.name,
        found.token or "",
        rfc3339(found.updated_us),
        f"{base}/consumers",
        f"{base}/messages",
        f"{base}/broadcast",
        f"{base}/messages-status",
        f"{base}/scheduled-messages",
    )
    return reply(shape, headers=_validators(found.updated_us))


def _consumer(found: Consumer, *, show_token: bool) -> Response:
    shape = shapes.ConsumerShape(
        found.consumer_id,
        found.name,
        found.token if show_token else "",
        rfc3339(found.updated_us),
        found.callback_url,
        f"/channel/{found.channel_id}/consumer/{found.consumer_id}/dlq",
        found.kind,
    )
    return reply(shape, headers=_validators(found.updated_us))


async def get_producer(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    producer_id = request.path_params["producerId"]
    return _producer(
        await runtime.database.read(lambda tx: channels.find_producer(tx, producer_id))
    )


async def get_channel(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    channel_id = request.path_params["channelId"]
    return _channel(await runtime.database.read(lambda tx: channels.find_channel(tx, channel_id)))


async def get_consumer(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path = request.path_params
    found = await runtime.database.read(
        lambda tx: consumers.find_consumer(tx, path["channelId"], path["consumerId"])
    )
    return _consumer(found, show_token=False)


async def put_producer(runtime: Runtime, request: Request) -> Response:
    change, condition = await _asked(runtime, request)
    producer_id = request.path_params["producerId"]
    return _producer(
        await runtime.database.write(
            recorded(
                request,
                lambda tx: channels.put_producer(tx, producer_id, change, condition, tx.now_us()),
            )
        )
    )


async def put_channel(runtime: Runtime, request: Request) -> Response:
    change, condition = await _asked(runtime, request)
    channel_id = request.path_params["channelId"]
    return _channel(
        await runtime.database.write(
            recorded(
                request,
                lambda tx: channels.put_channel(tx, channel_id, change, condition, tx.now_us()),
            )
        )
    )


async def put_consumer(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    form = await read_form(request, [field.name for field in _CONSUMER_FORM])
    retries = form.get("maxRetries")
    change = consumers.ConsumerChange(
        name=form.get("name") or None,
        token=form.get("token") or None,
        callback_url=form.get("callbackUrl"),
        kind=form.get("type") or None,
        max_retries=None
        if retries is None
        else number_between(retries, 0, 0, limits.MAX_RETRIES_MAX, "maxRetries"),
    )
    found, show = await store_consumer(runtime, request, change)
    return _consumer(found, show_token=show)


async def store_consumer(
    runtime: Runtime, request: Request, change: consumers.ConsumerChange
) -> tuple[Consumer, bool]:
    """Create or change the consumer of the path."""
    path, condition, options = request.path_params, precondition(request), runtime.options
    change.check()
    refuse_inside(runtime, change.callback_url)
    defaults: ConsumerSettings = options.default_settings()

    def write(tx: Tx) -> tuple[Consumer, bool]:
        return consumers.put_consumer(
            tx,
            path["channelId"],
            path["consumerId"],
            change,
            condition,
            tx.now_us(),
            defaults=defaults,
            max_retries=options.max_retries,
            new_secret=new_secret,
        )

    return await runtime.database.write(recorded(request, write))


def refuse_inside(runtime: Runtime, url: str | None) -> None:
    """Reject at once what can be rejected without resolving names; the rest is checked at each call."""
    if not url:
        return
    guard = Guard(runtime.options.allow_networks, https_only=runtime.options.https_only)
    try:
        guard.check_url(urlsplit(url))
    except RefusedAddressError as error:
        raise bad_request(
            "address_refused", f"this must not be called: {error}", "callbackUrl"
        ) from None


async def delete_producer(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    producer_id, condition = request.path_params["producerId"], precondition(request)

    def write(tx: Tx) -> None:
        removing.remove_producer(tx, producer_id, condition, tx.now_us())

    await runtime.database.write(recorded(request, write))
    return Response(status_code=204)


async def delete_channel(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    channel_id, condition = request.path_params["channelId"], precondition(request)
    discard = flag(request, "discard", default=False)

    def write(tx: Tx) -> None:
        removing.remove_channel(tx, channel_id, condition, tx.now_us(), discard=discard)

    detail = "with all that hangs on it" if discard else None
    await runtime.database.write(recorded(request, write, detail))
    return Response(status_code=204)


async def delete_consumer(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path, condition = request.path_params, precondition(request)
    discard = flag(request, "discard", default=True)
    move_to = request.query_params.get("move_to")
    if move_to is not None:
        ids.check_id(move_to, "move_to")

    def write(tx: Tx) -> None:
        removing.remove_consumer(
            tx,
            path["channelId"],
            path["consumerId"],
            condition,
            tx.now_us(),
            discard=discard,
            move_to=move_to,
        )

    detail = None if move_to is None else f"its jobs go to {move_to}"
    await runtime.database.write(recorded(request, write, detail))
    return Response(status_code=204)


async def _asked(
    runtime: Runtime, request: Request
) -> tuple[definitions.Change, definitions.Precondition]:
    """The change to a producer or channel that an administrator requests."""
    require_admin(runtime, request)
    form = await read_form(request, [field.name for field in _FORM])
    change = definitions.Change(name=form.get("name") or None, token=form.get("token") or None)
    return change, precondition(request)


ENDPOINTS: Final = (
    *(
        Endpoint(
            method="GET",
            path=path,
            handler=handler,
            summary=f"The {what}, newest first",
            answers={200: shapes.Listing},
            parameters=CURSORS,
            tag="definitions",
            admin=True,
            errors=(404,),
        )
        for path, handler, what in (
            ("/producers", list_producers, "producers"),
            ("/channels", list_channels, "channels"),
            ("/channel/{channelId}/consumers", list_consumers, "consumers of a channel"),
        )
    ),
    *(
        Endpoint(
            method="GET",
            path=path,
            handler=handler,
            summary=f"One {what}; its token is not shown",
            answers={200: shape},
            tag="definitions",
            admin=True,
        )
        for path, handler, what, shape in (
            ("/producer/{producerId}", get_producer, "producer", shapes.ProducerShape),
            ("/channel/{channelId}", get_channel, "channel", shapes.ChannelShape),
            (
                "/channel/{channelId}/consumer/{consumerId}",
                get_consumer,
                "consumer",
                shapes.ConsumerShape,
            ),
        )
    ),
    *(
        Endpoint(
            method="PUT",
            path=path,
            handler=handler,
            summary=f"Create a {what}, or change it under `If-Unmodified-Since` or `If-Match`",
            answers={200: shape},
            form=form,
            tag="definitions",
            admin=True,
            audited=True,
            errors=(412,),
        )
        for path, handler, what, shape, form in (
            ("/producer/{producerId}", put_producer, "producer", shapes.ProducerShape, _FORM),
            ("/channel/{channelId}", put_channel, "channel", shapes.ChannelShape, _FORM),
            (
                "/channel/{channelId}/consumer/{consumerId}",
                put_consumer,
                "consumer",
                shapes.ConsumerShape,
                _CONSUMER_FORM,
            ),
        )
    ),
    Endpoint(
        method="DELETE",
        path="/producer/{producerId}",
        handler=delete_producer,
        summary="Delete a producer; what it has published stays",
        answers={204: None},
        tag="definitions",
        admin=True,
        audited=True,
        errors=(400, 412),
    ),
    Endpoint(
        method="DELETE",
        path="/channel/{channelId}",
        handler=delete_channel,
        summary="Delete a channel with its consumers, jobs and messages",
        answers={204: None},
        parameters=(
            Parameter("discard", "also with unfinished jobs or scheduled messages", type="boolean"),
        ),
        tag="definitions",
        admin=True,
        audited=True,
        errors=(409, 412),
    ),
    Endpoint(
        method="DELETE",
        path="/channel/{channelId}/consumer/{consumerId}",
        handler=delete_consumer,
        summary="Delete a consumer with its jobs, or move them to another one",
        answers={204: None},
        parameters=(
            Parameter("discard", "false: 409 if jobs wait or run", type="boolean"),
            Parameter("move_to", "the consumer that gets the waiting and the dead jobs"),
        ),
        tag="definitions",
        admin=True,
        audited=True,
        errors=(409, 412),
    ),
)
