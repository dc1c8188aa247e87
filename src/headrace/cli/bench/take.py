"""``headrace bench fetch`` and ``headrace bench consume``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import click

from ...api.consumers import ConsumerConfig
from ...client import Consumer
from ..shared.errors import Failure
from ..shared.progress import progress
from ..shared.verbs import Declare, Session, online
from .measure import CLIENTS, STREAM, Figure, clients_of, shares, show, timed

_OPTIONS: tuple[Declare, ...] = (
    STREAM,
    click.option(
        "--msgs", type=click.IntRange(1), default=None, help="how many messages (all there are)"
    ),
    click.option("--batch", type=click.IntRange(1), default=500, help="messages of a pull (500)"),
    click.option(
        "--acks", type=click.Choice(["explicit", "none"]), default="explicit", help="(explicit)"
    ),
    CLIENTS,
)
_WAIT_S = 5.0


@dataclass
class Taking:
    """How messages are taken, and how far all clients are.

    Attributes:
        batch: messages of a pull.
        acks: whether they are acknowledged.
        advance: told how many were taken.
        taken: their bytes.
    """

    batch: int
    acks: bool
    advance: Callable[[int], None]
    taken: list[int] = field(default_factory=list)


Take = Callable[[Consumer, int, Taking], Awaitable[None]]


@online(*_OPTIONS, fast=True)
async def fetch(
    session: Session, stream: str, msgs: int | None, batch: int, acks: str, clients: int
) -> None:
    """Take the messages of a stream in batches, and acknowledge them.

    The stream is what `headrace bench pub --jetstream` filled. The consumer is removed afterwards.
    """
    await _bench(session, stream, msgs, batch, acks, clients, "fetch", _by_fetch)


@online(*_OPTIONS, fast=True)
async def consume(
    session: Session, stream: str, msgs: int | None, batch: int, acks: str, clients: int
) -> None:
    """Take the messages of a stream as they come, from a buffer that is kept filled."""
    await _bench(session, stream, msgs, batch, acks, clients, "consume", _by_consume)


async def _bench(
    session: Session,
    stream: str,
    msgs: int | None,
    batch: int,
    acks: str,
    clients: int,
    what: str,
    take: Take,
) -> None:
    there = (await (await session.js.stream(stream)).info()).state.messages
    count = min(msgs or there, there)
    if not count:
        raise Failure(
            f"stream {stream} is empty", "headrace bench pub bench.test --jetstream    fills it"
        )
    config = ConsumerConfig(
        ack_policy="none" if acks == "none" else "explicit",
        max_ack_pending=0 if acks == "none" else max(10_000, 4 * batch * clients),
        inactive_threshold=60.0,
    )
    made = await session.js.create_consumer(stream, config)
    parts = shares(count, clients)
    try:
        async with clients_of(session, len(parts)) as sessions:
            consumers = [await each.js.consumer(stream, made.name) for each in sessions]
            with progress(session.output, "taking", count) as advance:
                taking = Taking(batch, acks != "none", advance)
                rows = zip(consumers, sessions, parts, strict=True)
                work = [partial(_whole, take, *row, taking) for row in rows]
                seconds = await timed(work)
    finally:
        await session.js.delete_consumer(stream, made.name)
    show(session, [Figure(f"{what} {batch}, acks {acks}", count, sum(taking.taken), seconds)])


async def _whole(
    take: Take, consumer: Consumer, session: Session, count: int, taking: Taking
) -> None:
    await take(consumer, count, taking)
    await session.connection.flush()


async def _by_fetch(consumer: Consumer, count: int, taking: Taking) -> None:
    while count:
        messages = await consumer.fetch(min(taking.batch, count), max_wait=_WAIT_S)
        if not messages:
            raise Failure(f"no message came within {_WAIT_S:g} s; somebody else may take them")
        taking.taken.append(sum(map(len, messages.payloads)))
        if taking.acks:
            messages.ack()
        taking.advance(len(messages))
        count -= len(messages)


async def _by_consume(consumer: Consumer, count: int, taking: Taking) -> None:
    async with consumer.consume(max_messages=taking.batch) as messages:
        async for some in messages.batches(count):
            if taking.acks:
                consumer.ack_all(some)
            taking.taken.append(sum(len(each.payload) for each in some))
            taking.advance(len(some))
            count -= len(some)
            if count <= 0:
                return
