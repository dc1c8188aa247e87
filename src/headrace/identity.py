"""Which message it was: stream, sequence and timestamp, and whether a stream still has that very message.

A sequence alone proves nothing: a stream that lost its tail, was made again or was put back from an older
copy gives its sequences anew. Neither does the stream's name, nor the time it was created at: a restored
copy holds the same messages. The stream is the same where the message at the remembered sequence has the
remembered timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

__all__ = ["Mark", "MessageIdentity", "Sameness", "compare", "with_mark"]

Mark: TypeAlias = tuple[int, int]
"""The sequence and the timestamp, in nanoseconds, of a message before a place in a stream."""


class MessageIdentity(NamedTuple):
    """One message of one stream.

    ``sequence`` 0 is the place before the first message. ``timestamp_ns``: when it was stored, in
    nanoseconds since the epoch; 0 if that was never noted.
    """

    stream: str
    sequence: int
    timestamp_ns: int

    def __str__(self) -> str:
        return f"message {self.sequence} of stream {self.stream!r}"


class Sameness(Enum):
    """What a look at a stream says of a message that is remembered."""

    SAME = "same"
    """The message is there: the stream goes on from where it was left."""
    OTHER = "other"
    """The sequence was given to another message, or not yet: what is remembered is not in this stream."""
    GONE = "gone"
    """The message was removed, or its time is not known: from this look nobody can tell."""


def compare(
    remembered: MessageIdentity, found: MessageIdentity | None, last: MessageIdentity
) -> Sameness:
    """Say whether the stream that was looked at has the ``remembered`` message.

    ``found`` is the first message that the stream holds at the remembered sequence or after it; None
    if it holds none. ``last`` has the last sequence that the stream gave, and the timestamp of its last
    message (0 if it holds none). Both come from one look, or ``last`` from the older one.
    """
    sequence, noted_ns = remembered.sequence, remembered.timestamp_ns
    if sequence <= 0:
        return Sameness.SAME  # nothing was read yet: any stream is the right one
    if found is not None and found.sequence == sequence and noted_ns:
        return Sameness.SAME if found.timestamp_ns == noted_ns else Sameness.OTHER
    if found is None and last.sequence < sequence:
        return Sameness.OTHER
    if found is not None and noted_ns and found.timestamp_ns < noted_ns:
        return Sameness.OTHER  # times never go back within a stream
    return Sameness.GONE


def with_mark(marks: Sequence[Mark], mark: Mark) -> tuple[Mark, ...]:
    """Return ``marks`` with a newer one, without those that are not needed.

    They are the denser the newer: of those that lie 2ⁿ to 2ⁿ⁺¹ sequences back the first and the last stay.
    So of a stream that has lost its last messages a mark is left that is not much further back.
    """
    parts: dict[int, list[Mark]] = {}
    for one in (*marks, mark):
        parts.setdefault((mark[0] - one[0]).bit_length(), []).append(one)
    kept = {one for part in parts.values() for one in (part[0], part[-1])}
    return tuple(sorted(kept))
