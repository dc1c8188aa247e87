"""``headrace bench latency``."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import click

from ...client import Message
from ..shared.progress import progress
from ..shared.verbs import Session, online
from .measure import SIZE_OPTION, STREAM, Figure, clients_of, ready_stream, show


@online(
    click.argument("subject", default="bench.latency"),
    click.option("--msgs", type=click.IntRange(1), default=2000, help="how many of each (2000)"),
    SIZE_OPTION,
    click.option("-J", "--jetstream", is_flag=True, help="publishes to a stream, too"),
    STREAM,
    click.option(
        "--storage", type=click.Choice(["file", "memory"]), default="file", help="of a new stream"
    ),
    fast=True,
)
async def latency(
    session: Session, subject: str, msgs: int, size: int, jetstream: bool, stream: str, storage: str
) -> None:
    """Measure how long one thing takes, one after the other: a PING, a message from one client to another
    and back, and with --jetstream a publish until the stream has it on disk.
    """
    payload, figures = bytes(size), []
    connection = session.connection

    async def ping() -> None:
        await connection.flush()

    figures.append(await _measured(session, "ping", msgs, 0, ping))
    async with clients_of(session, 1) as (other,):

        async def answer(message: Message) -> None:
            await message.respond(message.payload)

        await other.connection.subscribe(subject, callback=answer)
        await other.connection.flush()

        async def request() -> None:
            await connection.request(subject, payload)

        figures.append(await _measured(session, "request and answer", msgs, size, request))
    if jetstream:
        await ready_stream(session, stream, subject, storage, purge=False)

        async def publish() -> None:
            await session.js.publish(subject, payload)

        figures.append(await _measured(session, f"publish to stream {stream}", msgs, size, publish))
    show(session, figures)


async def _measured(
    session: Session, what: str, count: int, size: int, one: Callable[[], Awaitable[None]]
) -> Figure:
    latencies = []
    began = time.perf_counter()
    with progress(session.output, what, count) as advance:
        for _ in range(count):
            sent = time.perf_counter()
            await one()
            latencies.append(time.perf_counter() - sent)
            advance(1)
    return Figure(what, count, count * size, time.perf_counter() - began, latencies)
