"""Stored messages on their way to receivers: the frames for one of these serve the others, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final, TypeAlias

from ...message import StoredRow

Outgoing: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, headers and payload, as ``Target.send`` takes them."""
NUMBERS: Final = b"%d.%d.%d.%d"
"""What follows the prefix of a reply subject: sequence, consumer sequence, time, and how many are pending."""


class Deliveries:
    """Stored messages, one after the other, as a consumer delivers them for the first time.

    The reply subject of each is a prefix, which is the consumer's, and ``NUMBERS``. Consumers that are as far
    send the same but for prefix and subscription id. So to many who wait the frames of the first are written,
    with these exchanged.
    """

    __slots__ = (
        "_frames",
        "_has_headers",
        "_largest_bytes",
        "_middle",
        "_together",
        "consumer_seq",
        "content_bytes",
        "pending",
        "rows",
    )

    def __init__(self, rows: Sequence[StoredRow], consumer_seq: int, pending: int) -> None:
        """``consumer_seq`` and ``pending`` are those of the first."""
        self.rows = rows
        self.consumer_seq = consumer_seq
        self.pending = pending
        self._largest_bytes = -1
        self._frames: list[bytes] | None = (
            None  # as they were made last, with what stands in between:
        )
        self._middle = b""
        self._has_headers = False
        self._together: bytes | None = (
            None  # these in one piece; empty if they say that elsewhere, too
        )
        self.content_bytes = 0
        """Of payloads and headers in the frames that were made last."""

    @property
    def largest_bytes(self) -> int:
        """How long the longest payload is."""
        if self._largest_bytes < 0:
            self._largest_bytes = max([len(row[3]) for row in self.rows])
        return self._largest_bytes

    def outgoing(self, prefix: bytes) -> Iterator[Outgoing]:
        """Message by message, for ``Target.send``."""
        for (seq, subject, headers, payload, time_ns), at, left in self.numbered():
            yield subject, prefix + NUMBERS % (seq, at, time_ns, left), headers, payload

    def numbered(self) -> Iterator[tuple[StoredRow, int, int]]:
        """Each with its consumer sequence, and how many are pending after it."""
        return zip(self.rows, count(self.consumer_seq), count(self.pending, -1))

    def frames(self, sid: bytes, prefix: bytes, has_headers: bool) -> list[bytes]:
        """The frames for a receiver, which understands headers or does not; with copies of the payloads."""
        middle = sid + prefix
        if self._frames is not None and self._has_headers is has_headers:
            if self._together is None:
                together = b"".join(self._frames)
                is_clear = together.count(self._middle) == len(self._frames)
                self._together = together if is_clear else b""
            if self._together:
                return [self._together.replace(self._middle, middle)]
        self._frames = frames = self._made(middle.replace(b"%", b"%%"), has_headers)
        self._middle, self._has_headers, self._together = middle, has_headers, None
        return frames

    def _made(self, middle: bytes, has_headers: bool) -> list[bytes]:
        """The frames with this in between, which is part of a template."""
        rows, blocks = self.rows, [row[2] for row in self.rows]
        self.content_bytes = sum([len(row[3]) for row in rows])
        bare = b"MSG %%b%b%b %%d\r\n%%b\r\n" % (middle, NUMBERS)
        if not (has_headers and any(blocks)):
            return [
                bare % (subject, seq, at, time_ns, left, len(payload), payload)
                for (seq, subject, _, payload, time_ns), at, left in self.numbered()
            ]
        self.content_bytes += sum(map(len, blocks))
        if blocks.count(blocks[0]) == len(rows) and not any([row[3] for row in rows]):  # noqa: C419
            # As of a listing of keys: all but the numbers is written once.
            size, block = len(blocks[0]), blocks[0].replace(b"%", b"%%")
            same = b"HMSG %%b%b%b %d %d\r\n%b\r\n" % (middle, NUMBERS, size, size, block)
            return [
                same % (subject, seq, at, time_ns, left)
                for (seq, subject, _, _, time_ns), at, left in self.numbered()
            ]
        headed = b"HMSG %%b%b%b %%d %%d\r\n%%b%%b\r\n" % (middle, NUMBERS)
        return [
            headed
            % (
                subject, seq, at, time_ns, left,
                len(block), len(block) + len(payload), block, payload,
            )
            if block
            else bare % (subject, seq, at, time_ns, left, len(payload), payload)
            for (seq, subject, block, payload, time_ns), at, left in self.numbered()
        ]  # fmt: skip
