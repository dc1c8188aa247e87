"""``headrace bench sub`` and ``headrace bench service``: core messages, without a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

import click

from ...client import Message
from ..shared.errors import Failure
from ..shared.progress import progress
from ..shared.units import DURATION
from ..shared.verbs import Session, online
from .measure import CLIENTS, SIZE_OPTION, Figure, clients_of, shares, show, timed


@online(
    click.argument("subject"),
    click.option(
        "--msgs", type=click.IntRange(1), default=100_000, help="how many messages (100000)"
    ),
    click.option(
        "--wait", type=DURATION, default=60.0, help="end if nothing comes for so long (60s)"
    ),
    fast=True,
)
async def sub(session: Session, subject: str, msgs: int, wait: float) -> None:
    """Receive messages on SUBJECT that somebody else publishes; the clock runs from the first one on.

    \b
    headrace bench sub bench.test            in one terminal
    headrace bench pub bench.test            in another one
    """
    count, size, began = 0, 0, 0.0
    async with await session.connection.subscribe(
        subject, pending_messages=msgs + 1, pending_bytes=1 << 30
    ) as messages:
        await session.connection.flush()
        session.output.note(f"waiting for {msgs:,} messages on {subject}")
        with progress(session.output, "receiving", msgs) as advance:
            while count < msgs:
                try:
                    message = await messages.next(wait)
                except TimeoutError:
                    raise Failure(
                        f"{count:,} of {msgs:,} messages came, and none for {wait:g} s",
                        f"headrace bench pub {subject} --msgs {msgs}    publishes as many",
                    ) from None
                began = began or time.perf_counter()
                count += 1
                size += len(message.payload)
                advance(1)
    show(session, [Figure("receive", count, size, time.perf_counter() - began)])


@online(
    click.argument("subject", default="bench.service"),
    click.option("--msgs", type=click.IntRange(1), default=10_000, help="requests (10000)"),
    click.option(
        "--instances", type=click.IntRange(1, 100), default=1, help="that answer in turn (1)"
    ),
    SIZE_OPTION,
    CLIENTS,
    fast=True,
)
async def service(
    session: Session, subject: str, msgs: int, instances: int, size: int, clients: int
) -> None:
    """Ask a service, each client one request after the other. It answers with the request.

    The instances are connections of this process, too.
    """
    payload, latencies = bytes(size), list[float]()
    parts = shares(msgs, clients)

    async def answer(message: Message) -> bytes:
        return bytes(message.payload)

    async with clients_of(session, instances) as servers, clients_of(session, len(parts)) as askers:
        services = await asyncio.gather(
            *(each.connection.add_service("headrace-bench", version="1.0.0") for each in servers)
        )
        for each, served in zip(services, servers, strict=True):
            await each.add_endpoint("echo", answer, subject=subject)
            await served.connection.flush()
        with progress(session.output, "asking", msgs) as advance:
            pairs = zip(askers, parts, strict=True)
            work = [
                partial(_ask, each, subject, payload, part, latencies, advance)
                for each, part in pairs
            ]
            seconds = await timed(work)
        for each in services:
            await each.stop()
    what = f"request, {instances} {'instance' if instances == 1 else 'instances'}"
    show(session, [Figure(what, msgs, msgs * size, seconds, latencies)])


async def _ask(
    session: Session,
    subject: str,
    payload: bytes,
    count: int,
    latencies: list[float],
    advance: Callable[[int], None],
) -> None:
    for _ in range(count):
        sent = time.perf_counter()
        await session.connection.request(subject, payload)
        latencies.append(time.perf_counter() - sent)
        advance(1)
