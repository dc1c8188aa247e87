"""The message of a channel that a stream's message is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ids, limits
from ..matching.filters import SUBJECT
from ..models import RESERVED_HEADERS, RESERVED_PREFIXES, NewMessage
from ..service.moves import storable

if TYPE_CHECKING:
    from ...client import JetStreamMessage

__all__ = ["message_of"]


def message_of(prefix: str, message: JetStreamMessage) -> NewMessage:
    """The channel message for a stream's message: its headers except reserved ones, its subject, its
    sequence.
    """
    content_type = "application/octet-stream"
    stored: dict[str, str] = {}
    for name, value in message.headers.items():
        lower = name.lower()
        if lower == "content-type":
            content_type = storable(value[: limits.CONTENT_TYPE_CHARS_MAX])
        elif (
            lower not in RESERVED_HEADERS
            and not lower.startswith((*RESERVED_PREFIXES, "nats-"))
            and len(stored) < limits.METADATA_HEADERS_MAX
        ):
            stored[storable(name)] = storable(value)
    sequence = message.metadata.stream_seq
    stored[SUBJECT] = storable(message.subject)
    stored["X-Headrace-Sequence"] = str(sequence)
    return NewMessage(
        payload=message.payload,
        content_type=content_type,
        message_id=ids.check_id(f"{prefix}.{sequence}", "stream"),
        headers=stored,
    )
