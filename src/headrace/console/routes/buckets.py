"""Key-value buckets: which there are, their keys, a key's history, deleting."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ...api.times import format_time
from ...client.kv import KeyValue
from .. import payloads
from ..answers import RefusedError, answer, body_of, confirm, query_number
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
    return answer({})


async def _bucket(sources: Sources, request: Request) -> KeyValue:
    return await sources.js.key_value(request.path_params["bucket"])


ROUTES: Final = (
    ("GET", "/api/buckets", table),
    ("GET", "/api/buckets/{bucket}/keys", keys),
    ("DELETE", "/api/buckets/{bucket}", drop),
    ("GET", "/api/buckets/{bucket}/keys/{key:path}", one),
    ("PUT", "/api/buckets/{bucket}/keys/{key:path}", put),
    ("DELETE", "/api/buckets/{bucket}/keys/{key:path}", delete),
)
