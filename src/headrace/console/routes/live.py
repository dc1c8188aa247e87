"""Live pages: the looks, and new messages of a stream, as server-sent events; and the past as curves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from ...client.jetstream.stored_message import is_marker
from ...errors import HeadraceError
from ..answers import RefusedError
from ..sources import FOLLOWERS_MAX, Sources
from .messages import row_of

QUIET_S: Final = 15.0  # a comment is sent when nothing else was: proxies cut what is silent
FOLLOWED_PER_S: Final = 200  # more new messages a second are counted, not shown


async def overview(sources: Sources, request: Request) -> Any:
    """The first page's numbers, of the newest look."""
    if request.query_params.get("now"):
        await sources.watcher.refresh()
    return sources.watcher.overview()


async def history(sources: Sources, request: Request) -> Any:
    """The curve of one series: ``overview``, ``stream/NAME`` or ``consumer/STREAM/NAME``."""
    return sources.watcher.history.columns(request.query_params.get("of", "overview"))


async def looks(sources: Sources, request: Request) -> StreamingResponse:
    """The overview after each look."""
    del request

    async def events() -> AsyncIterator[bytes]:
        with _follower(sources):
            async for number in sources.watcher.watch():
                yield _event("look", {"number": number, **sources.watcher.overview()})

    return _stream(sources, events())


async def follow(sources: Sources, request: Request) -> StreamingResponse:
    """New messages of a stream, at most ``FOLLOWED_PER_S`` a second; the others are counted.

    Markers of Spark's sinks are left out, unless ``markers`` is set.
    """
    subject, markers = request.query_params.get("subject", ""), request.query_params.get("markers")
    stream = await sources.js.stream(request.path_params["stream"])
    consumer = await stream.ordered_consumer(
        deliver_policy="new", filter_subjects=(subject,) if subject else ()
    )

    async def events() -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        shown, skipped, window, why = 0, 0, loop.time(), ""
        yield _event("begin", {})
        with _follower(sources):
            try:
                async with consumer.consume() as messages:
                    async for message in messages:
                        if not markers and is_marker(message):
                            continue
                        now = loop.time()
                        if now - window >= 1.0:
                            if skipped:
                                yield _event("skipped", {"count": skipped})
                            shown, skipped, window = 0, 0, now
                        if shown >= FOLLOWED_PER_S:
                            skipped += 1
                            continue
                        shown += 1
                        tokens = message.metadata
                        yield _event(
                            "message",
                            row_of(
                                tokens.stream_seq,
                                message.subject,
                                tokens.timestamp_ns,
                                message.payload,
                                len(message.headers),
                            ),
                        )
            except HeadraceError as error:  # the stream is gone, say
                why = str(error)
        yield _event("end", {"error": why})

    return _stream(sources, events())


@contextlib.contextmanager
def _follower(sources: Sources) -> Any:
    sources.followers += 1
    try:
        yield
    finally:
        sources.followers -= 1


def _event(name: str, document: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(document))


def _stream(sources: Sources, events: AsyncIterator[bytes]) -> StreamingResponse:
    if sources.followers >= FOLLOWERS_MAX:
        raise RefusedError(
            503, "too_many_followers", f"at most {FOLLOWERS_MAX} pages are kept up to date"
        )
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(
        _kept_alive(events, sources.ending), headers=headers, media_type="text/event-stream"
    )


async def _kept_alive(events: AsyncIterator[bytes], ending: asyncio.Event) -> AsyncIterator[bytes]:
    """The events until the console ends, and a comment whenever none has come for a while."""
    coming: asyncio.Task[bytes] | None = None
    ended = asyncio.ensure_future(ending.wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(events))
            while not await _any_done(coming, ended):
                yield b": still here\n\n"
            if ended.done():
                return
            try:
                yield coming.result()
            except StopAsyncIteration:
                return
    finally:
        ended.cancel()
        if coming is not None and not coming.done():
            coming.cancel()
            await asyncio.wait([coming])
            if not coming.cancelled():
                with contextlib.suppress(StopAsyncIteration):
                    coming.result()
        await events.aclose()  # type: ignore[attr-defined]


async def _any_done(*waited: asyncio.Future[Any]) -> bool:
    done, _ = await asyncio.wait(waited, timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


ROUTES: Final = (
    ("GET", "/api/overview", overview),
    ("GET", "/api/history", history),
    ("GET", "/api/live", looks),
    ("GET", "/api/streams/{stream}/follow", follow),
)
