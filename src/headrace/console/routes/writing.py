"""What the console writes: messages, and streams made and changed."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from starlette.requests import Request

from ...api.streams import StreamConfig
from ...client.jetstream.streams import loss_of
from ...subjects import is_literal
from ..answers import RefusedError, body_of, changes_between, config_of, confirm, text_of
from ..sources import Sources


async def publish(sources: Sources, request: Request) -> Any:
    """Publish a message into this stream, and answer when it is stored.

    Body: ``subject``; ``payload`` as text or ``payload_base64``; ``headers``, lines ``Name: value``.
    """
    said = await body_of(request)
    subject = text_of(said, "subject")
    if not is_literal(subject.encode("utf-8", "replace")):
        raise RefusedError(
            400, "not_accepted", f"not a subject without wildcards: {subject[:200]!r}"
        )
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
    ("POST", "/api/streams", create),
    ("PUT", "/api/streams/{stream}", change),
    ("POST", "/api/streams/{stream}/messages", publish),
)
