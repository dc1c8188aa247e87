"""``headrace stream view STREAM [SIZE]``."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import datetime

import click

from ...client import Stream, StreamMessage
from ...client.jetstream.stored_message import if_found
from ..shared.names import STREAM
from ..shared.progress import progress
from ..shared.units import MOMENT
from ..shared.verbs import Session, online
from .get import stored_document, stored_text


@online(
    STREAM,
    click.argument("size", type=click.IntRange(1), default=25),
    click.option("--id", "first", type=click.IntRange(1), default=1, help="begin at this sequence"),
    click.option(
        "--since", type=MOMENT, default=None, metavar="TIME", help="begin at a time, or 1h ago"
    ),
    click.option("--subject", metavar="PATTERN", default="", help="only those of these subjects"),
    click.option("-r", "--raw", is_flag=True, help="payloads alone, one a line"),
    click.option("--all", "everything", is_flag=True, help="to the end, without asking"),
)
async def view(
    session: Session,
    stream: str,
    size: int,
    first: int,
    since: datetime | None,
    subject: str,
    raw: bool,
    everything: bool,
) -> None:
    """Show messages of a stream, SIZE (25) at a time.

    \b
    headrace stream view ORDERS
    headrace stream view ORDERS 100 --subject 'orders.new' --since 1h
    headrace stream view ORDERS --all --json > orders.jsonl

    On a terminal it asks for the next page; elsewhere it ends after one, or goes on to the end with --all.
    Reading leaves no trace in the stream.
    """
    found = await session.js.stream(stream)
    info = await found.info()
    pages = sys.stdin.isatty() and sys.stdout.isatty() and not everything
    shown = 0
    total = info.state.messages if everything and not sys.stdout.isatty() else None
    with progress(session.output, "reading", total, wanted=total is not None) as advance:
        async for message in stored_messages(found, subject, first, since):
            if shown and shown % size == 0 and not everything and not (pages and _next_page()):
                session.output.note(f"there is more: --id {message.sequence}, or --all")
                return
            _show(session, message, raw)
            shown += 1
            advance(1)
    if not shown:
        session.output.note(f"stream {stream} has no such message")


async def stored_messages(
    stream: Stream, subject: str, first: int, since: datetime | None
) -> AsyncIterator[StreamMessage]:
    """The messages from there on: many at a time where the stream allows it, otherwise one by one."""
    assert stream.cached_info is not None
    if stream.cached_info.state.messages == 0:
        return
    if since is not None:
        message = await if_found(stream.get_next_message(subject or ">", start_time=since))
        if message is None:
            return
        first = message.sequence
    if stream.cached_info.config.allow_direct:
        async for message in stream.scan(subject=subject, first=first):
            yield message
        return
    while (message := await if_found(stream.get_next_message(subject or ">", first))) is not None:
        yield message
        first = message.sequence + 1


def _show(session: Session, message: StreamMessage, raw: bool) -> None:
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(message.payload + b"\n")
    else:
        session.output.line(stored_document(message), stored_text(message))


def _next_page() -> bool:
    print("-- Enter: next page, q: end -- ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() not in ("q", "quit", "n", "no")
