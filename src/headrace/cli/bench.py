"""``headrace bench pub`` and ``headrace bench consume``: how fast a server is, seen from this machine."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import click

from ..api.consumers import ConsumerConfig
from ..api.streams import StreamConfig
from ..errors import JetStreamApiError
from .commands import CommandEntry
from .shared.errors import Failure
from .shared.output import Advance, Table, progress
from .shared.units import SIZE, bytes_text, duration_text
from .shared.verbs import LazyGroup, Session, online

bench = LazyGroup(
    "bench",
    {
        "pub": CommandEntry("publish as fast as it goes", "bench:pub"),
        "consume": CommandEntry("take messages of a stream as they come", "bench:consume"),
    },
    "Measure how fast a server is. The figures are of this machine, this network and this client.",
)

_STREAM: Final = click.option(
    "--stream", metavar="NAME", default="benchstream", help="(benchstream, as in the nats tool)"
)
_NO_STREAM: Final = 10059
_STEP: Final = 1000
_AHEAD: Final = 500


@dataclass
class Figure:
    """One measurement.

    Attributes:
        what: was done.
        messages, bytes: how many.
        seconds: how long all of them took.
    """

    what: str
    messages: int
    bytes: int
    seconds: float

    def document(self) -> dict[str, Any]:
        """For programs."""
        seconds = max(self.seconds, 1e-9)
        return {
            "what": self.what,
            "messages": self.messages,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.messages / seconds, 1),
            "bytes_per_second": round(self.bytes / seconds, 1),
        }


def show(session: Session, figure: Figure) -> None:
    """Show it."""
    numbers = ("MESSAGES", "TIME", "MSG/S", "BYTES/S")
    table = Table(("WHAT", *numbers), right=frozenset(numbers))
    seconds = max(figure.seconds, 1e-9)
    table.add(
        figure.what,
        f"{figure.messages:,}",
        duration_text(figure.seconds),
        f"{figure.messages / seconds:,.0f}",
        bytes_text(figure.bytes / seconds),
    )
    session.output.show([figure.document()], table)


async def ready_stream(session: Session, name: str, subject: str) -> None:
    """Make sure that the stream stores ``subject``. Raises Failure if it is there and does not."""
    try:
        await session.js.stream(name)
    except JetStreamApiError as error:
        if error.err_code != _NO_STREAM:
            raise
        await session.js.create_stream(StreamConfig(name=name, subjects=(subject,)))
        session.output.note(f"created stream {name}; `headrace stream rm {name}` removes it")
        return
    names = [each async for each in session.js.stream_names(subject=subject)]
    if name not in names:
        raise Failure(
            f"stream {name} does not store {subject!r}",
            f"headrace stream rm {name}    removes it; the benchmark creates a new one",
        )


@online(
    click.argument("subject"),
    click.option(
        "--msgs", type=click.IntRange(1), default=100_000, help="how many messages (100000)"
    ),
    click.option("--size", type=SIZE, default="128", help="bytes of a message (128)"),
    click.option(
        "-J", "--jetstream", is_flag=True, help="into a stream, until all are acknowledged"
    ),
    _STREAM,
    fast=True,
)
async def pub(
    session: Session, subject: str, msgs: int, size: int, jetstream: bool, stream: str
) -> None:
    """Publish messages to SUBJECT as fast as it goes.

    \b
    headrace bench pub bench.test
    headrace bench pub bench.test --jetstream --size 1K
    """
    payload = bytes(size)
    if jetstream:
        await ready_stream(session, stream, subject)
    send = into_stream if jetstream else into_nowhere
    with progress(session.output, "publishing", msgs) as advance:
        began = time.perf_counter()
        await send(session, subject, payload, msgs, advance)
        seconds = time.perf_counter() - began
    what = f"publish to stream {stream}" if jetstream else "publish"
    show(session, Figure(what, msgs, msgs * size, seconds))


async def into_stream(
    session: Session, subject: str, payload: bytes, count: int, advance: Advance
) -> None:
    """Publish so many, and wait until a stream has acknowledged all of them."""
    async with session.js.publisher() as publisher:
        while count:
            step = min(_STEP, count)
            for _ in range(step):
                await publisher.send(subject, payload)
            advance(step)
            count -= step


async def into_nowhere(
    session: Session, subject: str, payload: bytes, count: int, advance: Advance
) -> None:
    """Publish so many, which nobody acknowledges."""
    publish = session.connection.publish
    while count:
        step = min(_STEP, count)
        for _ in range(step):
            await publish(subject, payload)
        advance(step)
        count -= step
        await asyncio.sleep(0)  # publishing waits for nothing: Ctrl-C would not be heard
    await session.connection.flush()


@online(
    _STREAM,
    click.option(
        "--msgs", type=click.IntRange(1), default=None, help="how many messages (all there are)"
    ),
    fast=True,
)
async def consume(session: Session, stream: str, msgs: int | None) -> None:
    """Take the messages of a stream as they come, from a buffer that is kept filled, and acknowledge them.

    The stream is what `headrace bench pub --jetstream` filled. The consumer is removed afterwards.
    """
    there = (await (await session.js.stream(stream)).info()).state.messages
    count = min(msgs or there, there)
    if not count:
        raise Failure(
            f"stream {stream} is empty", "headrace bench pub bench.test --jetstream    fills it"
        )
    config = ConsumerConfig(ack_policy="explicit", max_ack_pending=10_000, inactive_threshold=60.0)
    consumer = await session.js.create_consumer(stream, config)
    left, size = count, 0
    try:
        with progress(session.output, "taking", count) as advance:
            began = time.perf_counter()
            async with consumer.consume(max_messages=_AHEAD) as messages:
                while left and (some := await messages.next_batch(left)):
                    consumer.ack_all(some)
                    size += sum(len(each.payload) for each in some)
                    advance(len(some))
                    left -= len(some)
            await session.connection.flush()
            seconds = time.perf_counter() - began
    finally:
        await session.js.delete_consumer(stream, consumer.name)
    show(session, Figure("consume", count, size, seconds))
