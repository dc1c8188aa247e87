"""The message as it lies in a stream: what the store gives and the core reads."""

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
"""The fields of a ``StoredMessage`` as a bare tuple, for reading many: it is made in half the time, and
the garbage collector soon looks at it no more, as it does at instances of classes."""


class SubjectState(NamedTuple):
    """What a stream holds of one subject."""

    first_seq: int
    last_seq: int
    count: int  # type: ignore[assignment]  # in place of a method of tuples nobody needs here


class StreamState(NamedTuple):
    """What a stream holds. An empty stream has ``first_seq == last_seq + 1`` (0 and 0 when fresh).

    ``bytes`` is accounted as nats-server does; ``first_ns``/``last_ns`` are 0 when there is no message.
    """

    messages: int
    bytes: int
    first_seq: int
    first_ns: int
    last_seq: int
    last_ns: int
    num_subjects: int
    num_deleted: int
