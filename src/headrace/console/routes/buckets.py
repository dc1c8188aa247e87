"""Buckets of keys, and of objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from ...api.times import format_time
from ...client.kv import KeyValue
from ...client.objects.info import ObjectInfo, ObjectNotFoundError
from .. import payloads
from ..answers import RefusedError, attachment, body_of, confirm, query_number
from ..sources import Sources
from ..subjects import SHOWN, subjects_of

OFFSET_MAX: Final = 1 << 40


async def table(sources: Sources, request: Request) -> Any:
    """All buckets, as of the newest look."""
    del request
    rows = [row for row in sources.watcher.stream_rows() if row["kind"] == "bucket"]
    return {"buckets": [{**row, "bucket": row["name"].removeprefix("KV_")} for row in rows]}


async def keys(sources: Sources, request: Request) -> Any:
    """Keys that match ``filter``, some of them from ``offset`` on; deleted ones are not told apart here."""
    name = request.path_params["bucket"]
    prefix = f"$KV.{name}."
    asked = request.query_params.get("filter", "")
    offset = query_number(request, "offset", 0, OFFSET_MAX)
    pattern = prefix + asked if asked else ""
    found = await subjects_of(sources.js, f"KV_{name}", pattern, offset, every=f"{prefix}>")
    config = found.info.config
    return {
        "bucket": name,
        "total": found.info.state.num_subjects,
        "matching": found.matching,
        "offset": found.offset,
        "more": found.more,
        "page": SHOWN,
        "history": config.max_msgs_per_subject,
        "ttl_s": config.max_age,
        "keys": [
            {"key": subject.removeprefix(prefix), "revisions": count}
            for subject, count in found.counts.items()
        ],
    }


async def one(sources: Sources, request: Request) -> Any:
    """All revisions of a key, the newest first."""
    bucket = await _bucket(sources, request)
    entries = await bucket.history(request.path_params["key"])
    return {
        "bucket": bucket.bucket,
        "key": request.path_params["key"],
        "revisions": [
            {
                "revision": each.revision,
                "operation": each.operation,
                "time": format_time(each.created_ns),
                "payload": payloads.shown(each.value),
            }
            for each in reversed(entries)
        ],
    }


async def put(sources: Sources, request: Request) -> Any:
    """A new value for a key. With ``revision`` only if that is still the newest."""
    said = await body_of(request)
    value, revision = said.get("value"), said.get("revision")
    if not isinstance(value, str):
        raise RefusedError(400, "not_accepted", "value has to be text")
    bucket = await _bucket(sources, request)
    key = request.path_params["key"]
    if isinstance(revision, int) and not isinstance(revision, bool):
        return {"revision": await bucket.update(key, value.encode(), revision)}
    return {"revision": await bucket.put(key, value.encode())}


async def delete(sources: Sources, request: Request) -> Any:
    """Mark a key as deleted; its history stays."""
    key = request.path_params["key"]
    confirm(await body_of(request), key)
    await (await _bucket(sources, request)).delete(key)
    return {}


async def drop(sources: Sources, request: Request) -> Any:
    """Delete a bucket with all its keys."""
    name = request.path_params["bucket"]
    confirm(await body_of(request), name)
    await sources.js.delete_key_value(name)
    await sources.watcher.refresh()
    return {}


async def _bucket(sources: Sources, request: Request) -> KeyValue:
    return await sources.js.key_value(request.path_params["bucket"])


UPLOADS_MAX: Final = 4
"""Uploads at the same time; further ones are refused."""

PAUSE_S_MAX: Final = 60.0
"""An upload of which nothing comes for so long is given up."""


async def stores(sources: Sources, request: Request) -> Any:
    """All object buckets, as of the newest look."""
    del request
    rows = [row for row in sources.watcher.stream_rows() if row["kind"] == "objects"]
    return {"buckets": [{**row, "bucket": row["name"].removeprefix("OBJ_")} for row in rows]}


async def listing(sources: Sources, request: Request) -> Any:
    """The objects of one bucket."""
    store = await sources.js.object_store(request.path_params["bucket"])
    found = sorted(await store.list(), key=lambda each: each.name)
    return {"bucket": request.path_params["bucket"], "objects": [_row(each) for each in found]}


async def download(sources: Sources, request: Request) -> StreamingResponse:
    """An object's bytes, as a file to keep: never shown or run by the browser."""
    store = await sources.js.object_store(request.path_params["bucket"])
    name = request.path_params["name"]
    info = await store.info(name)

    async def chunks() -> AsyncIterator[bytes]:
        async with store.open(name) as reader:
            async for chunk in reader:
                yield chunk

    headers = {
        "content-disposition": attachment(name.rpartition("/")[2] or "object"),
        "content-length": str(info.size),
        "cache-control": "no-store",
    }
    return StreamingResponse(chunks(), headers=headers, media_type="application/octet-stream")


async def upload(sources: Sources, request: Request) -> Any:
    """Store the body as an object. One of that name stays, unless the query says ``replace=1``.

    What is cut off, or stops for a minute, leaves nothing: an older object stays as it was.
    """
    store = await sources.js.object_store(request.path_params["bucket"])
    name = request.path_params["name"]
    if request.query_params.get("replace") != "1":
        try:
            await store.info(name)
        except ObjectNotFoundError:
            pass
        else:
            raise RefusedError(409, "exists", f"there is an object {name!r} already: replace it?")
    if sources.uploads >= UPLOADS_MAX:
        raise RefusedError(429, "too_many", f"{UPLOADS_MAX} uploads are under way: try again later")
    sources.uploads += 1
    try:
        info = await store.put(name, _pieces(request))
    except ClientDisconnect:
        raise RefusedError(400, "cut_off", f"the upload of {name!r} was cut off") from None
    except TimeoutError:
        text = f"nothing came of {name!r} for {PAUSE_S_MAX:.0f} seconds: it was given up"
        raise RefusedError(408, "too_slow", text) from None
    finally:
        sources.uploads -= 1
    return _row(info)


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        async with asyncio.timeout(PAUSE_S_MAX):
            piece = await anext(stream, None)
        if piece is None:
            return
        yield piece


async def delete_object(sources: Sources, request: Request) -> Any:
    """Delete an object."""
    name = request.path_params["name"]
    confirm(await body_of(request), name)
    store = await sources.js.object_store(request.path_params["bucket"])
    await store.delete(name)
    return {}


async def drop_store(sources: Sources, request: Request) -> Any:
    """Delete a bucket with all its objects."""
    name = request.path_params["bucket"]
    confirm(await body_of(request), name)
    await sources.js.delete_object_store(name)
    await sources.watcher.refresh()
    return {}


def _row(info: ObjectInfo) -> dict[str, Any]:
    link = f"{info.link.bucket}/{info.link.name}" if info.link is not None else ""
    return {
        "name": info.name,
        "description": info.description,
        "bytes": info.size,
        "chunks": info.chunks,
        "time": format_time(info.modified_ns),
        "digest": info.digest.hex(),
        "link": link,
    }


ROUTES: Final = (
    ("GET", "/api/buckets", table),
    ("GET", "/api/buckets/{bucket}/keys", keys),
    ("DELETE", "/api/buckets/{bucket}", drop),
    ("GET", "/api/buckets/{bucket}/keys/{key:path}", one),
    ("PUT", "/api/buckets/{bucket}/keys/{key:path}", put),
    ("DELETE", "/api/buckets/{bucket}/keys/{key:path}", delete),
    ("GET", "/api/objects", stores),
    ("GET", "/api/objects/{bucket}", listing),
    ("DELETE", "/api/objects/{bucket}", drop_store),
    ("GET", "/api/objects/{bucket}/{name:path}", download),
    ("PUT", "/api/objects/{bucket}/{name:path}", upload),
    ("DELETE", "/api/objects/{bucket}/{name:path}", delete_object),
)
