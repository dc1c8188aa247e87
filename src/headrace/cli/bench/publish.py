"""``headrace bench pub SUBJECT``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import click

from ..shared.errors import Failure
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

_Send = Callable[[Session, str, bytes, int, Callable[[int], None]], Awaitable[None]]


@online(
    click.argument("subject"),
    click.option(
        "--msgs", type=click.IntRange(1), default=100_000, help="how many messages (100000)"
    ),
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
    click.option("--fast", is_flag=True, help="in fast batches (with --jetstream)"),
    click.option(
        "--atomic",
        type=click.IntRange(1, 1000),
        default=None,
        metavar="N",
        help="in atomic batches of N messages (with --jetstream)",
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
    fast: bool,
    atomic: int | None,
) -> None:
    """Publish messages to SUBJECT as fast as it goes.

    \b
    headrace bench pub bench.test --clients 2
    headrace bench pub bench.test --jetstream --purge --size 1K
    headrace bench pub bench.test --jetstream --fast
    headrace bench pub bench.test --jetstream --atomic 100

    For --fast and --atomic a new stream takes such batches; one that is there has to have --allow-fast-batch
    or --allow-batch.
    """
    payload = bytes(size)
    batches = fast or atomic is not None
    if (batches and not jetstream) or (fast and atomic is not None):
        raise Failure("give --fast or --atomic, with --jetstream")
    if jetstream:
        await ready_stream(session, stream, subject, storage, purge=purge, batches=batches)
    parts = shares(msgs, clients)
    async with clients_of(session, len(parts)) as sessions:
        with progress(session.output, "publishing", msgs) as advance:
            send = _sender(window, fast, atomic) if jetstream else _into_nowhere
            pairs = zip(sessions, parts, strict=True)
            work = [partial(send, each, subject, payload, part, advance) for each, part in pairs]
            seconds = await timed(work)
    how = ", fast batches" if fast else f", atomic batches of {atomic}" if atomic else ""
    what = f"publish to stream {stream}{how}" if jetstream else "publish"
    show(session, [Figure(what, msgs, msgs * size, seconds)])


def _sender(window: int, fast: bool, atomic: int | None) -> _Send:
    return partial(_in_batches, atomic) if atomic else partial(_into_stream, window, fast)


async def _in_batches(
    size: int,
    session: Session,
    subject: str,
    payload: bytes,
    count: int,
    advance: Callable[[int], None],
) -> None:
    while count:
        step = min(size, count)
        async with session.js.batch() as batch:
            for _ in range(step):
                batch.add(subject, payload)
        advance(step)
        count -= step


async def _into_stream(
    window: int,
    fast: bool,
    session: Session,
    subject: str,
    payload: bytes,
    count: int,
    advance: Callable[[int], None],
) -> None:
    publisher = session.js.publisher(fast=True) if fast else session.js.publisher(window)
    async with publisher:
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
