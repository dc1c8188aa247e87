"""Object buckets: which there are, their objects, downloading, uploading, deleting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse

from ...api.times import format_time
from ...client.objects.info import ObjectInfo, ObjectNotFoundError
from ..answers import RefusedError, body_of, confirm
from ..sources import Sources

UPLOADS_MAX: Final = 4
"""Uploads at the same time; further ones are refused."""

PAUSE_S_MAX: Final = 60.0
"""An upload of which nothing comes for so long is given up."""


async def table(sources: Sources, request: Request) -> Any:
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

    file = quote(name.rpartition("/")[2] or "object", safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{file}",
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


async def delete(sources: Sources, request: Request) -> Any:
    """Delete an object."""
    name = request.path_params["name"]
    confirm(await body_of(request), name)
    store = await sources.js.object_store(request.path_params["bucket"])
    await store.delete(name)
    return {}


async def drop(sources: Sources, request: Request) -> Any:
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
    ("GET", "/api/objects", table),
    ("GET", "/api/objects/{bucket}", listing),
    ("DELETE", "/api/objects/{bucket}", drop),
    ("GET", "/api/objects/{bucket}/{name:path}", download),
    ("PUT", "/api/objects/{bucket}/{name:path}", upload),
    ("DELETE", "/api/objects/{bucket}/{name:path}", delete),
)
