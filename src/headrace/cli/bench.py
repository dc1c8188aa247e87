"""``headrace bench pub`` and ``headrace bench consume``: how fast a server is, seen from this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

from ..api.consumers import ConsumerConfig
from ..api.streams import StreamConfig
from ..client import Consumer
from ..errors import JetStreamApiError
from .commands import CommandEntry
from .shared.errors import Failure
from .shared.output import Table, progress
from .shared.units import SIZE, bytes_text, duration_text
from .shared.verbs import Declare, LazyGroup, Session, connected, online

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
_CLIENTS: Final[Declare] = click.option(
    "--clients", type=click.IntRange(1, 100), default=1, help="connections at work (1)"
)
_SIZE: Final[Declare] = click.option(
    "--size", type=SIZE, default="128", help="bytes of a message (128)"
)
_NO_STREAM: Final = 10059
_STEP: Final = 1000

_Send = Callable[[Session, str, bytes, int, Callable[[int], None]], Awaitable[None]]


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


def shares(count: int, clients: int) -> list[int]:
    """The work divided among clients; nobody has nothing to do."""
    clients = min(count, clients)
    return [count // clients + (number < count % clients) for number in range(clients)]


@asynccontextmanager
async def clients_of(session: Session, count: int) -> AsyncIterator[list[Session]]:
    """So many sessions, each with a connection of its own."""
    async with AsyncExitStack() as stack:
        places = [connected(session.where, session.output) for _ in range(count)]
        yield [await stack.enter_async_context(place) for place in places]


async def timed(work: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Do all of it at once; the seconds until the last is done. The first error ends all, and is raised."""
    began = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(_run(each))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return time.perf_counter() - began


async def _run(work: Callable[[], Awaitable[object]]) -> None:
    await work()


async def ready_stream(
    session: Session, name: str, subject: str, storage: str, *, purge: bool, batches: bool = False
) -> None:
    """Make sure that the stream stores ``subject``. Raises Failure if it is there and does not.

    A new one takes atomic and fast batches if ``batches`` is set.
    """
    try:
        stream = await session.js.stream(name)
    except JetStreamApiError as error:
        if error.err_code != _NO_STREAM:
            raise
        config = StreamConfig(
            name=name,
            subjects=(subject,),
            storage="memory" if storage == "memory" else "file",
            allow_atomic=batches,
            allow_batched=batches,
        )
        await session.js.create_stream(config)
        session.output.note(f"created stream {name}; `headrace stream rm {name}` removes it")
        return
    names = [each async for each in session.js.stream_names(subject=subject)]
    if name not in names:
        raise Failure(
            f"stream {name} does not store {subject!r}",
            f"headrace stream rm {name}    removes it; the benchmark creates a new one",
        )
    if purge:
        await stream.purge()


@online(
    click.argument("subject"),
    click.option(
        "--msgs", type=click.IntRange(1), default=100_000, help="how many messages (100000)"
    ),
    _SIZE,
    _CLIENTS,
    click.option(
        "-J", "--jetstream", is_flag=True, help="into a stream, until all are acknowledged"
    ),
    _STREAM,
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

    For --fast and --atomic a new stream takes such batches; one that is there has to have --allow-batched
    or --allow-atomic.
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
    show(session, Figure(what, msgs, msgs * size, seconds))


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


@online(
    _STREAM,
    click.option(
        "--msgs", type=click.IntRange(1), default=None, help="how many messages (all there are)"
    ),
    click.option("--batch", type=click.IntRange(1), default=500, help="messages of a pull (500)"),
    click.option(
        "--acks", type=click.Choice(["explicit", "none"]), default="explicit", help="(explicit)"
    ),
    _CLIENTS,
    fast=True,
)
async def consume(
    session: Session, stream: str, msgs: int | None, batch: int, acks: str, clients: int
) -> None:
    """Take the messages of a stream as they come, from a buffer that is kept filled, and acknowledge them.

    The stream is what `headrace bench pub --jetstream` filled. The consumer is removed afterwards.
    """
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
    parts, taken = shares(count, clients), list[int]()
    try:
        async with clients_of(session, len(parts)) as sessions:
            consumers = [await each.js.consumer(stream, made.name) for each in sessions]
            with progress(session.output, "taking", count) as advance:

                def took(messages: int, size: int) -> None:
                    taken.append(size)
                    advance(messages)

                rows = zip(consumers, sessions, parts, strict=True)
                seconds = await timed(
                    [partial(_take, *row, batch, acks != "none", took) for row in rows]
                )
    finally:
        await session.js.delete_consumer(stream, made.name)
    show(session, Figure(f"consume {batch}, acks {acks}", count, sum(taken), seconds))


async def _take(
    consumer: Consumer,
    session: Session,
    count: int,
    batch: int,
    acks: bool,
    took: Callable[[int, int], None],
) -> None:
    async with consumer.consume(max_messages=batch) as messages:
        # Never more than its share: another client would wait for ever for what this one acknowledged.
        while count and (some := await messages.next_batch(count)):
            if acks:
                consumer.ack_all(some)
            took(len(some), sum(len(each.payload) for each in some))
            count -= len(some)
    await session.connection.flush()
