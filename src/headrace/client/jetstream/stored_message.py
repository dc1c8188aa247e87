"""A message read out of a stream, whichever way the server sent it."""

from __future__ import annotations

import base64
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from ... import sink_markers
from ...api import names
from ...api.base import read_typed
from ...api.errors import Errors
from ...api.messages import StoredMessageDocument
from ...api.times import parse_time
from ...errors import ConfigurationError, JetStreamApiError, ProtocolError
from ...wire.headers import Headers, parse_headers


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message read out of a stream by ``get_message`` and its like.

    ``timestamp_ns``: when it was stored, in nanoseconds since the Unix epoch.
    """

    subject: str
    sequence: int
    payload: bytes
    headers: Headers = field(default_factory=Headers)
    timestamp_ns: int = 0


async def if_found(message: Awaitable[StreamMessage]) -> StreamMessage | None:
    """The message, or None if the stream answers that there is none. Raises as asking for it does."""
    try:
        return await message
    except JetStreamApiError as error:
        if error.err_code != Errors.NO_MESSAGE_FOUND.err_code:
            raise
        return None


class _HasHeaders(Protocol):
    @property
    def subject(self) -> str: ...
    @property
    def headers(self) -> Headers: ...


def is_marker(message: _HasHeaders) -> bool:
    """Whether a sink of Spark keeps its place in the stream by this message."""
    return sink_markers.HEADER in message.headers or (
        len(message.headers) > 0 and sink_markers.is_former_marker(message.subject.encode())
    )


def from_document(document: StoredMessageDocument) -> StreamMessage:
    """A stored message out of the JSON answer of MSG.GET."""
    return StreamMessage(
        subject=document.subject,
        sequence=document.seq,
        payload=base64.b64decode(document.data),
        headers=parse_headers(base64.b64decode(document.hdrs)),
        timestamp_ns=parse_time(document.time),
    )


def from_direct(headers: bytes, payload: bytes) -> StreamMessage:
    """A stored message out of a direct answer, whose headers say what it is.

    Raises JetStreamApiError: the answer is a status, such as 404; ProtocolError: it is no such answer.
    """
    parsed = parse_headers(headers)
    if parsed.status == 404:
        raise Errors.NO_MESSAGE_FOUND.as_exception()
    if parsed.status is not None:
        raise JetStreamApiError(parsed.status, Errors.BAD_REQUEST.err_code, parsed.description)
    own = [(name, value) for name, value in parsed.items() if name not in _ADDED]
    try:
        return StreamMessage(
            subject=parsed[names.SUBJECT],
            sequence=int(parsed[names.SEQUENCE]),
            payload=payload,
            headers=Headers(own),
            timestamp_ns=parse_time(parsed[names.TIME_STAMP]),
        )
    except (KeyError, ValueError) as error:
        raise ProtocolError(
            f"a direct answer is not understood: {error!r} in {parsed!r:.200}"
        ) from error


_ADDED: Final = frozenset({
    names.STREAM, names.SUBJECT, names.SEQUENCE, names.TIME_STAMP, names.NUM_PENDING, names.LAST_SEQUENCE,
})  # fmt: skip


def counter_value(payload: bytes) -> int:
    """The value in a counter's message. Raises ConfigurationError for another message."""
    try:
        return int(read_typed(payload, _Counter).val)
    except ValueError:
        raise ConfigurationError(f"{payload[:40]!r} is not the message of a counter") from None


class _Counter(msgspec.Struct):
    val: str
