"""A stored message, as the store returns it and the core reads it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["StoredMessage", "StoredRow", "StreamState", "SubjectState"]


class StoredMessage(NamedTuple):
    """One stored message. ``headers`` is the raw block, or ``b""``; ``timestamp_ns`` since the epoch."""

    sequence: int
    subject: bytes
    headers: bytes
    payload: bytes
    timestamp_ns: int


StoredRow: TypeAlias = tuple[int, bytes, bytes, bytes, int]
"""The fields of a ``StoredMessage`` as a bare tuple, for bulk reads. It takes half the time to make,
and unlike an instance of a class the garbage collector soon stops tracking it.
"""


class SubjectState(NamedTuple):
    """What a stream holds for one subject."""

    first_seq: int
    last_seq: int
    count: int  # type: ignore[assignment]  # in place of a method of tuples nobody needs here


class StreamState(NamedTuple):
    """What a stream holds. An empty stream has ``first_seq == last_seq + 1`` (0 and 0 when fresh).

    ``bytes`` is counted as nats-server does; ``first_ns``/``last_ns`` are 0 when there is no message.
    """

    messages: int
    bytes: int
    first_seq: int
    first_ns: int
    last_seq: int
    last_ns: int
    num_subjects: int
    num_deleted: int
