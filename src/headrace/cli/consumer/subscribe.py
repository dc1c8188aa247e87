"""``headrace consumer sub STREAM CONSUMER``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from ...client.jetstream.pull import PriorityOptions
from ..messaging.subscribe import Show
from ..shared.names import CONSUMER, STREAM
from ..shared.units import DURATION
from ..shared.verbs import Session, online

if TYPE_CHECKING:
    from ...client import Consumer, JetStreamMessage

_AT_ONCE = 100  # what was pulled and not shown when it ends comes again, so not many
_PULL_S = 30.0


@online(
    STREAM,
    CONSUMER,
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many messages"
    ),
    click.option("--wait", type=DURATION, default=None, help="end when so long none came"),
    click.option("--ack/--no-ack", default=True, help="acknowledge what was shown (yes)"),
    click.option("--group", metavar="NAME", default="", help="as a client of this priority group"),
    click.option("-r", "--raw", is_flag=True, help="payloads alone"),
    name="sub",
)
async def sub(
    session: Session,
    stream: str,
    consumer: str,
    count: int | None,
    wait: float | None,
    ack: bool,
    group: str,
    raw: bool,
) -> None:
    """Show the messages of a consumer as they come, and acknowledge them, until Ctrl-C.

    \b
    headrace consumer sub ORDERS billing
    headrace consumer sub ORDERS billing --no-ack --count 3     they come again

    It pulls, or listens where the consumer pushes. Others who read with the same consumer get the rest.
    """
    found = await session.js.consumer(stream, consumer)
    session.output.note(f"reading with consumer {consumer} of stream {stream}; Ctrl-C ends it")
    await show_each(session, found, Show(session, raw=raw), count, wait, ack=ack, group=group)


async def show_each(
    session: Session,
    consumer: Consumer,
    show: Show,
    count: int | None,
    wait: float | None,
    *,
    ack: bool,
    group: str = "",
) -> None:
    """Show up to ``count`` messages, until none comes for ``wait`` seconds, and acknowledge each."""
    config = (consumer.cached_info or await consumer.info()).config
    if config.deliver_subject:
        coming = _pushed(consumer, count, wait)
    else:
        coming = _pulled(consumer, count, wait, group)
    async with aclosing(coming) as messages:
        async for message in messages:
            show.stored(message)
            if ack and config.ack_policy != "none":
                message.ack()
    await session.connection.flush()


async def _pulled(
    consumer: Consumer, count: int | None, wait: float | None, group: str
) -> AsyncGenerator[JetStreamMessage, None]:
    priority: PriorityOptions = {"group": group} if group else {}
    left = count
    while left is None or left > 0:
        size = _AT_ONCE if left is None else min(left, _AT_ONCE)
        batch = await consumer.fetch(size, max_wait=wait or _PULL_S, **priority)
        if not batch and wait is not None:
            return
        left = None if left is None else left - len(batch)
        for message in batch:
            yield message


async def _pushed(
    consumer: Consumer, count: int | None, wait: float | None
) -> AsyncGenerator[JetStreamMessage, None]:
    left = count
    async with await consumer.listen() as messages:
        while left is None or left > 0:
            try:
                async with asyncio.timeout(wait):
                    message = await anext(messages)
            except (TimeoutError, StopAsyncIteration):
                return
            left = None if left is None else left - 1
            yield message
