"""What is sent of stored messages: each with the reply subject its acknowledgement goes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ....message import StoredRow

__all__ = ["Outgoing", "answered"]

Outgoing: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, headers and payload, as ``Target.send`` takes them."""


def answered(
    rows: Sequence[StoredRow], reply: bytes, consumer_seq: int, pending: int
) -> Iterator[Outgoing]:
    """Stored messages with their reply subjects, for ``send``; see ``Target.send_stored``."""
    for at, (seq, subject, headers, payload, time_ns) in enumerate(rows):
        yield subject, reply % (seq, consumer_seq + at, time_ns, pending - at), headers, payload
