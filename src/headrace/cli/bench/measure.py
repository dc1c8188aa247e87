"""What all benchmarks have in common: clients, times, figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import click

from ...api.streams import StreamConfig
from ...errors import JetStreamApiError
from ..shared.errors import Failure
from ..shared.output import Table
from ..shared.units import SIZE, bytes_text, duration_text
from ..shared.verbs import Declare, Session, connected

STREAM: Final = click.option(
    "--stream", metavar="NAME", default="benchstream", help="(benchstream, as in the nats tool)"
)
CLIENTS: Final[Declare] = click.option(
    "--clients", type=click.IntRange(1, 100), default=1, help="connections at work (1)"
)
SIZE_OPTION: Final[Declare] = click.option(
    "--size", type=SIZE, default="128", help="bytes of a message (128)"
)
_NO_STREAM: Final = 10059


@dataclass
class Figure:
    """One measurement.

    Attributes:
        what: was done.
        messages, bytes: how many.
        seconds: how long all of them took.
        latencies: of single ones, in seconds, where they were taken.
    """

    what: str
    messages: int
    bytes: int
    seconds: float
    latencies: list[float] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """For programs."""
        seconds = max(self.seconds, 1e-9)
        found: dict[str, Any] = {
            "what": self.what,
            "messages": self.messages,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.messages / seconds, 1),
            "bytes_per_second": round(self.bytes / seconds, 1),
        }
        for share in (50, 99, 99.9) if self.latencies else ():
            found[f"p{share:g}_ms"] = round(percentile(self.latencies, share) * 1000, 4)
        return found


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` per cent of them are, or equal to it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]


def show(session: Session, figures: Sequence[Figure]) -> None:
    """Show them."""
    timed = any(each.latencies for each in figures)
    numbers = ("MESSAGES", "TIME", "MSG/S", "BYTES/S", "P50", "P99", "P99.9")
    headings = ("WHAT", *(numbers if timed else numbers[:4]))
    table = Table(headings, right=frozenset(numbers))
    for each in figures:
        seconds = max(each.seconds, 1e-9)
        row = [each.what, f"{each.messages:,}", duration_text(each.seconds)]
        row += [f"{each.messages / seconds:,.0f}", f"{bytes_text(each.bytes / seconds)}"]
        if timed:
            shares = (50, 99, 99.9)
            row += [
                duration_text(percentile(each.latencies, s)) if each.latencies else ""
                for s in shares
            ]
        table.add(*row)
    session.output.show([each.document() for each in figures], table)


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
