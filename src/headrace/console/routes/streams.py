"""Streams: listed, shown, made, changed, purged, deleted, and written to."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from starlette.requests import Request

from ...api.base import to_wire
from ...api.streams import StreamConfig
from ...client.jetstream.streams import loss_of
from ..answers import (
    RefusedError,
    body_of,
    changes_between,
    check_literal,
    config_of,
    confirm,
    number_of,
    query_number,
    text_of,
)
from ..look import stream_row
from ..sources import Sources
from ..subjects import SHOWN, subjects_of
from .messages import sequence_of

OFFSET_MAX: Final = 1 << 40


async def table(sources: Sources, request: Request) -> Any:
    """All streams, as of the newest look."""
    del request
    return {"streams": sources.watcher.stream_rows(), "error": sources.watcher.error}


async def one(sources: Sources, request: Request) -> Any:
    """A stream: numbers, configuration, consumers, where it copies from."""
    name = request.path_params["stream"]
    stream = await sources.js.stream(name)
    info = await stream.info()
    watcher = sources.watcher
    return {
        "row": stream_row(info, watcher.before, watcher.look.at_s),
        "created": info.created,
        "first_time": info.state.first_ts if info.state.last_seq else "",
        "config": to_wire(info.config),
        "cluster": to_wire(info.cluster) if info.cluster is not None else None,
        "mirror": to_wire(info.mirror) if info.mirror is not None else None,
        "sources": [to_wire(each) for each in info.sources],
        "lost": to_wire(info.state.lost) if info.state.lost is not None else None,
        "consumers": watcher.consumer_rows(name),
    }


async def subjects(sources: Sources, request: Request) -> Any:
    """Subjects of a stream and how many messages each has, the largest first as long as the server gives
    all of them at once, else by name. Query: ``filter``, ``offset``."""
    asked = request.query_params.get("filter", "")
    offset = query_number(request, "offset", 0, OFFSET_MAX)
    name = request.path_params["stream"]
    found = await subjects_of(sources.js, name, asked, offset, largest=True)
    return {
        "total": found.info.state.num_subjects,
        "matching": found.matching,
        "offset": found.offset,
        "more": found.more,
        "page": SHOWN,
        "subjects": [{"subject": name, "messages": count} for name, count in found.counts.items()],
    }


async def purge(sources: Sources, request: Request) -> Any:
    """Remove messages: all, of a subject, below a sequence, or all but the newest."""
    name = request.path_params["stream"]
    said = await body_of(request)
    confirm(said, name)
    stream = await sources.js.stream(name)
    purged = await stream.purge(
        subject=text_of(said, "subject"),
        below=number_of(said, "below"),
        keep=number_of(said, "keep"),
    )
    await sources.watcher.refresh()
    return {"purged": purged}


async def delete(sources: Sources, request: Request) -> Any:
    """Delete a stream with its messages and consumers."""
    name = request.path_params["stream"]
    confirm(await body_of(request), name)
    await sources.js.delete_stream(name)
    await sources.watcher.refresh()
    return {}


async def delete_message(sources: Sources, request: Request) -> Any:
    """Delete one message and overwrite its bytes."""
    sequence = sequence_of(request)
    confirm(await body_of(request), request.path_params["sequence"])
    stream = await sources.js.stream(request.path_params["stream"])
    await stream.delete_message(sequence)
    return {}


async def publish(sources: Sources, request: Request) -> Any:
    """Publish a message into this stream, and answer when it is stored.

    Body: ``subject``; ``payload`` as text or ``payload_base64``; ``headers``, lines ``Name: value``.
    """
    said = await body_of(request)
    subject = text_of(said, "subject")
    check_literal(subject)
    ack = await sources.js.publish(
        subject,
        _payload(said),
        headers=_headers(text_of(said, "headers")),
        expected_stream=request.path_params["stream"],
    )
    return {"stream": ack.stream, "seq": ack.seq, "duplicate": ack.duplicate}


async def create(sources: Sources, request: Request) -> Any:
    """Make a stream. Body: ``config``, as the JetStream API has it."""
    config = config_of(await body_of(request), StreamConfig)
    stream = await sources.js.create_stream(config)
    await sources.watcher.refresh()
    return {"name": stream.name}


async def change(sources: Sources, request: Request) -> Any:
    """Change a stream. Body: the whole ``config``; ``dry_run`` answers what would change and be removed.

    What removes messages needs the stream's name in ``confirm``.
    """
    said = await body_of(request)
    name = request.path_params["stream"]
    after = config_of(said, StreamConfig)
    if after.name != name:
        raise RefusedError(400, "not_accepted", "the name of a stream does not change here")
    stream = await sources.js.stream(name)
    info = await stream.info()
    loss = await loss_of(stream, info, after)
    removes = bool(loss.messages or loss.unneeded)
    if said.get("dry_run") is True:
        changes = changes_between(info.config, after)
        return {"changes": changes, "loss": loss.text.removeprefix(", "), "removes": removes}
    if removes:
        confirm(said, name)
    await stream.update(after)
    await sources.watcher.refresh()
    return {}


def _payload(said: dict[str, Any]) -> bytes:
    encoded = text_of(said, "payload_base64")
    if not encoded:
        return text_of(said, "payload").encode("utf-8", "surrogatepass")
    if text_of(said, "payload"):
        raise RefusedError(400, "not_accepted", "give a payload as text or as a file, not both")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(400, "not_accepted", f"payload_base64: {error}") from error


def _headers(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise RefusedError(400, "not_accepted", f"a header is Name: value, not {line[:80]!r}")
        found.setdefault(name.strip(), []).append(value.strip())
    return found


ROUTES: Final = (
    ("GET", "/api/streams", table),
    ("GET", "/api/streams/{stream}", one),
    ("GET", "/api/streams/{stream}/subjects", subjects),
    ("POST", "/api/streams/{stream}/purge", purge),
    ("DELETE", "/api/streams/{stream}", delete),
    ("DELETE", "/api/streams/{stream}/messages/{sequence}", delete_message),
    ("POST", "/api/streams", create),
    ("PUT", "/api/streams/{stream}", change),
    ("POST", "/api/streams/{stream}/messages", publish),
)
