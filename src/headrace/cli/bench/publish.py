"""``headrace bench pub SUBJECT``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import click

from ..shared.progress import progress
from ..shared.verbs import Session, online
from .measure import (
    CLIENTS,
    SIZE_OPTION,
    STREAM,
    Figure,
    clients_of,
    ready_stream,
    shares,
    show,
    timed,
)

_STEP = 1000


@online(
    click.argument("subject"),
    click.option("--msgs", type=click.IntRange(1), default=100_000, help="so many (100000)"),
    SIZE_OPTION,
    CLIENTS,
    click.option(
        "-J", "--jetstream", is_flag=True, help="into a stream, until all are acknowledged"
    ),
    STREAM,
    click.option(
        "--storage", type=click.Choice(["file", "memory"]), default="file", help="of a new stream"
    ),
    click.option("--purge", is_flag=True, help="empty the stream first"),
    click.option(
        "--window",
        type=click.IntRange(1),
        default=16_000,
        help="not acknowledged at a time (16000)",
    ),
    fast=True,
)
async def pub(
    session: Session,
    subject: str,
    msgs: int,
    size: int,
    clients: int,
    jetstream: bool,
    stream: str,
    storage: str,
    purge: bool,
    window: int,
) -> None:
    """Publish messages to SUBJECT as fast as it goes.

    \b
    headrace bench pub bench.test --clients 2
    headrace bench pub bench.test --jetstream --purge --size 1K
    """
    payload = bytes(size)
    if jetstream:
        await ready_stream(session, stream, subject, storage, purge=purge)
    parts = shares(msgs, clients)
    async with clients_of(session, len(parts)) as sessions:
        with progress(session.output, "publishing", msgs) as advance:
            send = partial(_into_stream, window) if jetstream else _into_nowhere
            pairs = zip(sessions, parts, strict=True)
            work = [partial(send, each, subject, payload, part, advance) for each, part in pairs]
            seconds = await timed(work)
    what = f"publish to stream {stream}" if jetstream else "publish"
    show(session, [Figure(what, msgs, msgs * size, seconds)])


async def _into_stream(
    window: int,
    session: Session,
    subject: str,
    payload: bytes,
    count: int,
    advance: Callable[[int], None],
) -> None:
    async with session.js.publisher(window) as publisher:
        while count:
            step = min(_STEP, count)
            for _ in range(step):
                await publisher.send(subject, payload)
            advance(step)
            count -= step


async def _into_nowhere(
    session: Session, subject: str, payload: bytes, count: int, advance: Callable[[int], None]
) -> None:
    publish = session.connection.publish
    while count:
        step = min(_STEP, count)
        for _ in range(step):
            await publish(subject, payload)
        advance(step)
        count -= step
        await asyncio.sleep(0)  # publishing waits for nothing: Ctrl-C would not be heard
    await session.connection.flush()
