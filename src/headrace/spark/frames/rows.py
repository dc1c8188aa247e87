"""Messages on their way from a server to an Arrow batch, column by column."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

DELETIONS: Final = (b"\nKV-Operation: DEL", b"\nKV-Operation: PURGE", b"\nNats-Marker-Reason:")


def is_deletion(headers: bytes) -> bool:
    """Whether a message with this header block deletes its key."""
    return bool(headers) and any(sign in headers for sign in DELETIONS)


class Chunk(NamedTuple):
    """Rows, column by column.

    The position of a row in the stream is either in its ack subject (``acks``, parsed in bulk later), or in
    ``sequences`` and ``times`` (RFC 3339); what is not used is empty.
    """

    subjects: list[bytes]
    payloads: list[bytes]
    headers: list[bytes]
    acks: list[bytes]
    sequences: list[int]
    times: list[bytes]


class Rows(NamedTuple):
    """Messages as the ways without a consumer bring them; ``times`` as the server writes them."""

    subjects: list[bytes]
    payloads: list[bytes]
    headers: list[bytes]
    sequences: list[int]
    times: list[bytes]

    def add(self, more: Rows) -> None:
        """Append the others."""
        self.subjects.extend(more.subjects)
        self.payloads.extend(more.payloads)
        self.headers.extend(more.headers)
        self.sequences.extend(more.sequences)
        self.times.extend(more.times)

    def as_chunk(self, hi: int) -> Chunk:
        """The rows up to ``hi``."""
        count = bisect_right(self.sequences, hi)
        return Chunk(
            self.subjects[:count],
            self.payloads[:count],
            self.headers[:count],
            [],
            self.sequences[:count],
            self.times[:count],
        )


def no_rows() -> Rows:
    """Rows to add to."""
    return Rows([], [], [], [], [])
