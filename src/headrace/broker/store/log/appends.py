"""Appending with conditions: messages that expire by themselves, messages that stand or fall together.

Neither costs a plain append anything: what is special is written into the record after it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Final

from ....errors import StoreError
from ..format.expiries import Expiries
from ..format.record import FLAG_EXPIRES, FLAG_OPEN
from .limits import LimitedLog

__all__ = ["TOGETHER_BYTES_MAX", "AppendingLog", "ExpiryOf", "Staged"]

TOGETHER_BYTES_MAX: Final = 1 << 30  # more in one go: StoreError, and nothing is appended
_SUBJECT_MAX: Final = 0xFFFF
_OVERHEAD_MAX: Final = 64

ExpiryOf = Callable[[bytes, int], int]
"""``expiry_of(headers, timestamp_ns)``: when a message marked as expiring does so, in ns."""


Staged = tuple[bytes, bytes, bytes, int, int]
"""Subject, headers, payload, ``timestamp_ns``, ``expires_ns`` (0: it does not expire by itself)."""


def _footprint(message: Staged) -> int:
    """At most how many bytes the message takes where it is kept."""
    subject, headers, payload, _, _ = message
    return len(subject) + len(headers) + len(payload) + _OVERHEAD_MAX


class AppendingLog(LimitedLog):
    """The appending half of a stream store; see ``StreamStore`` in ``core/ports.py``."""

    def append(self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int) -> int:
        """Stage one message; return its sequence."""
        raise NotImplementedError

    def append_many(
        self,
        subject: bytes,
        payloads: Sequence[bytes],
        timestamp_ns: int,
        blocks: Sequence[bytes] = (),
    ) -> None:
        """``append`` for messages of one subject; when it raises, the first are staged.

        ``blocks`` are their headers, nothing when none has any.
        """
        append = self.append
        for headers, payload in zip(blocks or repeat(b""), payloads, strict=False):
            append(subject, headers, payload, timestamp_ns)

    def append_expiring(
        self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int, expires_ns: int
    ) -> int:
        """Stage one message that expires by itself. Raises as ``append`` does."""
        sequence = self.append(subject, headers, payload, timestamp_ns)
        tail = self._segments[-1]
        if tail.expiries is None:
            tail.expiries = Expiries()
        tail.expiries.add(sequence - tail.base, expires_ns)
        self._flag_last(FLAG_EXPIRES)
        return sequence

    def append_together(self, messages: Sequence[Staged]) -> int:
        """Stage messages of which a restart finds all or none; return the first one's sequence.

        Raises StoreError as ``append`` does, and when they are too large together; then none is staged.
        """
        total = sum(map(_footprint, messages))
        if total > TOGETHER_BYTES_MAX:
            raise StoreError(
                f"messages that belong together may take {TOGETHER_BYTES_MAX} bytes; these {total}"
            )
        if any(len(message[0]) > _SUBJECT_MAX for message in messages):
            raise StoreError(f"a subject may have {_SUBJECT_MAX} bytes")
        first = self.last_seq + 1
        self._gather(total)
        for message in messages:
            if message[4]:
                self.append_expiring(*message)
            else:
                self.append(*message[:4])
            if self.last_seq < first + len(messages) - 1:
                self._flag_last(FLAG_OPEN)
        return first

    def reset_first(self, sequence: int) -> None:
        """On an empty stream only: the next message gets this sequence.

        Raises StoreError if there are messages, or if ``sequence`` was already used.
        """
        self._check_writable()
        if self.messages:
            raise StoreError(
                f"stream {self.name!r} holds {self.messages} messages: only an empty stream can be "
                f"given a first sequence"
            )
        if sequence <= self.last_seq:
            raise StoreError(
                f"stream {self.name!r} has used sequences up to {self.last_seq}: the first sequence "
                f"can be set to {self.last_seq + 1} or more, not {sequence}"
            )
        if sequence > self.last_seq + 1:
            self._skip_to(sequence - 1)

    def skip_to(self, sequence: int) -> None:
        """The next message gets this sequence; those in between are never used.

        Raises StoreError if ``sequence`` was already used.
        """
        if not self.messages:
            self.reset_first(sequence)
            return
        self._check_writable()
        if sequence <= self.last_seq:
            raise StoreError(
                f"stream {self.name!r} has used sequences up to {self.last_seq}: the next one can not "
                f"be {sequence}"
            )
        if sequence > self.last_seq + 1:
            first = self._first
            self._skip_to(sequence - 1)
            self._first = first

    def _intern(self, subject: bytes) -> int:
        if len(subject) > _SUBJECT_MAX:
            raise StoreError(
                f"a subject may have {_SUBJECT_MAX} bytes; this one has {len(subject)}"
            )
        return self._table.intern(subject)

    def expiries(self) -> Iterator[tuple[int, int]]:
        """``(sequence, expires_ns)`` of every message there is that expires by itself."""
        for segment in self._segments:
            if segment.expiries:
                segment.ensure()
                for rel, time_ns in segment.expiries:
                    sequence = segment.base + rel
                    if sequence >= self._first and segment.find(sequence) >= 0:
                        yield sequence, time_ns

    def expires_ns(self, sequence: int) -> int:
        """When a message expires by itself; 0 if it does not, or is gone."""
        segment, position = self._locate(sequence)
        if position < 0 or segment.expiries is None:
            return 0
        return segment.expiries.find(sequence - segment.base)

    def _skip_to(self, last_seq: int) -> None:
        """Sequences up to ``last_seq`` will not be used; the next append starts a segment there."""
        raise NotImplementedError

    def _gather(self, nbytes: int) -> None:
        """Make room for so many bytes in one piece. Raises StoreError if nothing may be changed."""
        raise NotImplementedError

    def _flag_last(self, flag: int) -> None:
        """Set a flag in the record that was appended last."""
        raise NotImplementedError
