"""A stream at both ends of copying: it takes in what others hold, and has readers that copy from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .....message import StoredMessage
from ..headers.published import MARK
from ..headers.source import without_expectations
from ..headers.ttl import expires_at
from .storing import StoringStream

if TYPE_CHECKING:
    from ..sourcing.copy import Copy

__all__ = ["CopyingStream"]

_PLACEHOLDERS_MAX: Final = 4096  # a longer gap begins a new segment instead
_PLACEHOLDER: Final = b""  # no message has this subject


class CopyingStream(StoringStream):
    """What a stream has beside publishing; see ``stream.Stream``."""

    readers: dict[Copy, None]
    """Who copies from this stream."""
    is_plain: bool
    _crowds: bool
    """Whether each new message may be one too many of its subject."""

    def take_copy(self, subject: bytes, headers: bytes, payload: bytes) -> bool:
        """Store a message of a source, which its headers name; False for a duplicate, passed over.

        Raises Refused when it can not be stored now, StoreError.
        """
        now_ns = self.time()
        if self.is_plain and headers.count(MARK) == 1:  # the source's name and nothing else of ours
            self.store.append(subject, headers, payload, now_ns)
            if self._crowds:
                self.crowded[subject] = None
            if not self._dirty:
                self._mark_dirty()
            return True
        subject = self.renamed(subject)
        found = self.checks.admit_copy(subject, headers, payload, now_ns)
        if found.duplicate_of:
            return False
        headers = found.headers or headers
        payload = payload if found.payload is None else found.payload
        self.context.quota.admit(self.config.storage, len(subject) + len(headers) + len(payload))
        sequence = self._store(subject, headers, payload, now_ns, found.expires_ns)
        if found.message_id:
            self.window.add(found.message_id, sequence, now_ns)
        self._after_append(subject, sequence, found.rollup)
        if not self._dirty:
            self._mark_dirty()
        return True

    def take_replica(self, message: StoredMessage, subject: bytes) -> None:
        """Store a message of the mirrored stream with its sequence and time.

        Raises Refused when it can not be stored now, StoreError.
        """
        sequence, _, headers, payload, stamp_ns = message
        store = self.store
        if sequence <= store.last_seq:
            return
        expires_ns, rollup = 0, b""
        if MARK in headers:
            headers = without_expectations(headers)
        if MARK in headers or not self.is_plain:
            subject = self.renamed(subject)
            found = self.checks.admit_copy(subject, headers, payload, stamp_ns, replica=True)
            self.context.quota.admit(
                self.config.storage, len(subject) + len(headers) + len(payload)
            )
            rollup = found.rollup
            expires_ns = expires_at(headers, stamp_ns) if found.expires_ns else 0
            if found.message_id:
                self.window.add(found.message_id, sequence, stamp_ns)
        if sequence > store.last_seq + 1:
            self._leave_gap(sequence, stamp_ns)
        self._last_ns = max(self._last_ns, stamp_ns)
        self._store(subject, headers, payload, stamp_ns, expires_ns)
        if rollup or self._crowds or not self.is_plain:
            self._after_append(subject, sequence, rollup)
        if not self._dirty:
            self._mark_dirty()

    def drop_placeholders(self) -> None:
        """After a restart: take away placeholders whose removal was cut off with the end of a file."""
        while (state := self.store.subject(_PLACEHOLDER)) is not None:
            self.store.remove([state.first_seq])

    def make_way(self) -> None:
        """Messages are gone: whoever waits for room goes on, and positions have to be kept."""
        if self.intake is not None:
            self.intake.touch(save=False)
        if self.crowd:
            crowd, self.crowd = self.crowd, {}
            self.context.copies.resume(crowd)

    def _leave_gap(self, sequence: int, stamp_ns: int) -> None:
        """See to it that the next message gets this sequence."""
        store = self.store
        missing = sequence - 1 - store.last_seq
        if not store.messages or missing > _PLACEHOLDERS_MAX:
            store.skip_to(sequence)
            return
        for _ in range(missing):
            store.append(_PLACEHOLDER, b"", b"", stamp_ns)
        store.remove(range(sequence - missing, sequence))
