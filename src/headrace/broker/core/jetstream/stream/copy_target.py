"""A stream as the target of copies: what it takes in of others, and who waits for room in it."""

from __future__ import annotations

from typing import Final

from .....message import StoredMessage
from ...ports.storage import StreamStore
from ..headers.published import MARK
from ..headers.source import without_expectations
from ..headers.ttl import expires_at
from ..ports import Copier, SourcePositions
from ..publish.admission import Checks
from .staging import Staging

_PLACEHOLDERS_MAX: Final = 4096  # a longer gap begins a new segment instead
_PLACEHOLDER: Final = b""  # no message has this subject


class CopyTarget:
    """Takes messages of the sources, or the mirrored stream, of one stream."""

    def __init__(self, store: StreamStore, staging: Staging, checks: Checks) -> None:
        self._store = store
        self._staging = staging
        self._checks = checks
        self.positions: SourcePositions | None = None
        """How far the copies have come, if there are any."""
        self.waiting: dict[Copier, None] = {}
        """Copies that have something for this stream and found it full."""
        self.room_for = checks.room_for

    def store_copy(self, subject: bytes, headers: bytes, payload: bytes) -> bool:
        """Store a message of a source, which its headers name; False for a duplicate, passed over.

        Raises Refused when it can not be stored now, StoreError.
        """
        staging = self._staging
        # Marked once: the source's name, and nothing else of ours.
        if staging.is_plain and headers.count(MARK) == 1:
            staging.stage(subject, headers, payload)
            return True
        arrival = self._checks.admit_copy(
            staging.renamed(subject), headers, payload, staging.time()
        )
        if arrival.duplicate_of:
            return False
        staging.check_quota(arrival.size)
        staging.stage(arrival.subject, arrival.headers, arrival.payload, arrival)
        return True

    def store_replica(self, message: StoredMessage, subject: bytes) -> None:
        """Store a message of the mirrored stream with its sequence and time.

        Raises Refused when it can not be stored now, StoreError.
        """
        sequence, _, headers, payload, stamp_ns = message
        staging = self._staging
        if sequence <= self._store.last_seq:
            return
        if MARK in headers:
            headers = without_expectations(headers)
        arrival = None
        if MARK in headers or not staging.is_plain:
            subject = staging.renamed(subject)
            arrival = self._checks.admit_copy(subject, headers, payload, stamp_ns, replica=True)
            arrival.headers, arrival.payload = headers, payload  # as they are there
            if arrival.expires_ns:
                arrival.expires_ns = expires_at(headers, stamp_ns)
            staging.check_quota(arrival.size)
        if sequence > self._store.last_seq + 1:
            leave_gap(self._store, sequence, stamp_ns)
        staging.stage(subject, headers, payload, arrival, stamp_ns)

    def drop_placeholders(self) -> None:
        """After a restart: take away placeholders whose removal was cut off with the end of a file."""
        while (state := self._store.subject(_PLACEHOLDER)) is not None:
            self._store.remove([state.first_seq])

    def made_room(self) -> None:
        """Messages are gone: whoever waits for room goes on, and positions have to be kept."""
        if self.positions is not None:
            self.positions.touch(save=False)
        if self.waiting:
            waiting, self.waiting = self.waiting, {}
            for copier in waiting:
                copier.go_on()


def leave_gap(store: StreamStore, sequence: int, stamp_ns: int, most: int = 1 << 62) -> bool:
    """See to it that the next message gets this sequence: those in between were never there.

    Does about ``most`` sequences of it; whether that was all.
    """
    missing = sequence - 1 - store.last_seq
    if not store.messages or missing > _PLACEHOLDERS_MAX:
        store.skip_to(sequence)
        return True
    first, some = store.last_seq + 1, min(missing, most)
    for _ in range(some):
        store.append(_PLACEHOLDER, b"", b"", stamp_ns)
    store.remove(range(first, first + some))
    return some == missing
