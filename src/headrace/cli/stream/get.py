"""``headrace stream get STREAM [ID]``."""

from __future__ import annotations

import sys

import click

from ...client import StreamMessage
from ...errors import JetStreamApiError
from ..shared.errors import Failure
from ..shared.messages import document, text, time_of
from ..shared.names import STREAM
from ..shared.verbs import Session, online

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
