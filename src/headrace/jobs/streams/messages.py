"""The message of a channel that a stream's message is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import ids, limits
from ..matching.filters import SUBJECT
from ..models import RESERVED_HEADERS, RESERVED_PREFIXES, NewMessage
from ..service.moves import storable

if TYPE_CHECKING:
    from ...client import JetStreamMessage

__all__ = ["message_from", "message_of"]


def message_of(prefix: str, message: JetStreamMessage) -> NewMessage:
    """The channel message for a stream's message: its headers except reserved ones, its subject, its
    sequence.
    """
    sequence = message.metadata.stream_seq
    headers = message.headers.items()
    return message_from(prefix, sequence, message.subject, headers, message.payload)


def message_from(
    prefix: str, sequence: int, subject: str, headers: Iterable[tuple[str, str]], payload: bytes
) -> NewMessage:
    """As :func:`message_of`, of what was read out of the stream by itself."""
    content_type = "application/octet-stream"
    stored: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if lower == "content-type":
            content_type = storable(value[: limits.CONTENT_TYPE_CHARS_MAX])
        elif (
            lower not in RESERVED_HEADERS
            and not lower.startswith((*RESERVED_PREFIXES, "nats-"))
            and len(stored) < limits.METADATA_HEADERS_MAX
        ):
            stored[storable(name)] = storable(value)
    stored[SUBJECT] = storable(subject)
    stored["X-Headrace-Sequence"] = str(sequence)
    return NewMessage(
        payload=payload,
        content_type=content_type,
        message_id=ids.check_id(f"{prefix}.{sequence}", "stream"),
        headers=stored,
    )
