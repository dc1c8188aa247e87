"""``headrace stream view`` and ``headrace stream get``."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import datetime

import click

from ...client import Stream, StreamMessage
from ...client.jetstream.stored_message import if_found, is_marker
from ...errors import JetStreamApiError
from ..shared.asking import read_line
from ..shared.errors import Failure
from ..shared.messages import document, text, time_of
from ..shared.names import STREAM
from ..shared.output import progress
from ..shared.units import MOMENT
from ..shared.verbs import Session, online


@online(
    STREAM,
    click.argument("size", type=click.IntRange(1), default=25),
    click.option("--id", "first", type=click.IntRange(1), default=1, help="begin at this sequence"),
    click.option(
        "--since", type=MOMENT, default=None, metavar="TIME", help="begin at a time, or 1h ago"
    ),
    click.option("--subject", metavar="PATTERN", default="", help="only those of these subjects"),
    click.option("-r", "--raw", is_flag=True, help="payloads alone, one a line"),
    click.option("--markers", is_flag=True, help="also the markers that Spark's sinks keep there"),
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
    markers: bool,
    everything: bool,
) -> None:
    """Show messages of a stream, SIZE (25) at a time.

    \b
    headrace stream view ORDERS
    headrace stream view ORDERS 100 --subject 'orders.new' --since 1h
    headrace stream view ORDERS --all --json > orders.jsonl

    On a terminal it asks for the next page; elsewhere it ends after one, or goes on to the end with --all.
    Reading leaves no trace in the stream. What exactly-once sinks of Spark keep in it is left out.
    """
    found = await session.js.stream(stream)
    info = await found.info()
    pages = sys.stdin.isatty() and sys.stdout.isatty() and not everything
    shown = hidden = 0
    total = info.state.messages if everything and not sys.stdout.isatty() else None
    with progress(session.output, "reading", total, wanted=total is not None) as advance:
        async for message in stored_messages(found, subject, first, since):
            if not markers and is_marker(message):
                hidden += 1
                continue
            if shown and shown % size == 0 and not everything and not (pages and _next_page()):
                session.output.note(f"there is more: --id {message.sequence}, or --all")
                break
            _show(session, message, raw)
            shown += 1
            advance(1)
    if hidden:
        session.output.note(
            f"{hidden:,} marker{'' if hidden == 1 else 's'} of Spark's sinks left out: --markers"
        )
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
    answer = read_line("-- Enter: next page, q: end -- ")
    return answer.strip().lower() not in ("q", "quit", "n", "no")


_NO_MESSAGE = 10037


@online(
    STREAM,
    click.argument("sequence", metavar="[ID]", type=click.IntRange(1), required=False),
    click.option(
        "-S", "--last-for", metavar="SUBJECT", default="", help="the last one of a subject"
    ),
    click.option("-r", "--raw", is_flag=True, help="the payload alone"),
)
async def get(
    session: Session, stream: str, sequence: int | None, last_for: str, raw: bool
) -> None:
    """Show one message: by its sequence, or the last one of a subject.

    \b
    headrace stream get ORDERS 17
    headrace stream get ORDERS --last-for orders.new
    """
    if (sequence is None) == (not last_for):
        raise Failure("give one of the sequence and --last-for SUBJECT")
    found = await session.js.stream(stream)
    try:
        if sequence is not None:
            message = await found.get_message(sequence)
        else:
            message = await found.get_last_message(last_for)
    except JetStreamApiError as error:
        if error.err_code != _NO_MESSAGE and error.code != 404:
            raise
        state = (await found.info()).state
        if sequence is None:
            raise Failure(f"stream {stream} has no message of subject {last_for!r}") from None
        raise Failure(
            f"stream {stream} has no message {sequence:,}; it has {state.messages:,}, "
            f"from {state.first_seq:,} to {state.last_seq:,}"
        ) from None
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(message.payload)
        return
    session.output.show(stored_document(message), stored_text(message))


def stored_document(message: StreamMessage) -> dict[str, object]:
    """A stored message for programs."""
    more = {"seq": message.sequence, "time": time_of(message.timestamp_ns)}
    return document(message.subject, message.payload, message.headers, **more)


def stored_text(message: StreamMessage) -> str:
    """A stored message for people."""
    first = f"[{message.sequence}] {message.subject} at {time_of(message.timestamp_ns)}"
    return text(first, message.payload, message.headers)
