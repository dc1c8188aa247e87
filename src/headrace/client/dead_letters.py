"""Sends a dead letter again that a stream keeps, or removes it. What one says: ``dead_letter_headers``."""

from __future__ import annotations

from typing import Final

from ..errors import JetStreamApiError
from ..handling.dead_letter_headers import Letter
from .jetstream.stored.stored_message import StreamMessage
from .jetstream.stream import Stream
from .jetstream_context import JetStream

_GONE: Final = 10037  # no message found


async def send_again(
    js: JetStream, letters: Stream, message: StreamMessage, letter: Letter, target: str = ""
) -> None:
    """Publish the letter's message to whence it comes, or to ``target``; remove the letter when it is stored.

    Within the duplicate window of its stream it is stored once, however often this is tried. The letter's
    time is in its id: the first letter of a stream that was made again has the sequence of another one.
    """
    await js.publish(
        target or letter.subject,
        message.payload,
        headers=letter.headers,
        msg_id=f"{letters.name}.{message.sequence}.{message.timestamp_ns}.again",
    )
    try:
        await letters.delete_message(message.sequence)
    except JetStreamApiError as error:
        if error.err_code != _GONE:
            raise
