"""Durability as the core sees it. ``broker.store`` matches these by shape, without importing them."""

from __future__ import annotations

import builtins  # a stream store has a property called bytes
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from ....message import StoredMessage, StoredRow, StreamState, SubjectState
from ....subjects import SubjectFilter

__all__ = ["Finding", "MetaJournal", "Removal", "Storage", "StreamStore", "Thinning"]


class StreamStore(Protocol):
    """One stream's messages. Not thread-safe: called on the owner's thread only.

    Whatever needs the disk raises StoreReadError when that cannot read now; nothing changes by it.

    A ``filter`` of ``None`` means every subject.
    """

    @property
    def durable_seq(self) -> int:
        """The highest sequence known to be on disk; moves only when a flush completes."""
        ...

    @property
    def state(self) -> StreamState: ...

    @property
    def last_seq(self) -> int: ...

    @property
    def first_seq(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def append(
        self,
        subject: builtins.bytes,
        headers: builtins.bytes,
        payload: builtins.bytes,
        timestamp_ns: int,
    ) -> int:
        """Stage one message; return its sequence. Raises StoreError once the store has failed."""
        ...

    def append_many(
        self,
        subject: builtins.bytes,
        payloads: Sequence[builtins.bytes],
        timestamp_ns: int,
        blocks: Sequence[builtins.bytes] = (),
    ) -> None:
        """``append`` for messages of one subject; when it raises, the first are staged.

        ``blocks`` are their headers, nothing when none has any.
        """
        ...

    def append_expiring(
        self,
        subject: builtins.bytes,
        headers: builtins.bytes,
        payload: builtins.bytes,
        timestamp_ns: int,
        expires_ns: int,
    ) -> int:
        """Stage one message that expires at a time by itself: the store keeps the time, not the rule."""
        ...

    def append_together(
        self,
        messages: Sequence[tuple[builtins.bytes, builtins.bytes, builtins.bytes, int, int]],
    ) -> int:
        """Stage messages of which a restart finds all or none; return the first one's sequence.

        Each is ``(subject, headers, payload, timestamp_ns, expires_ns)``, the last 0 for never.
        """
        ...

    def expiries(self) -> Iterator[tuple[int, int]]:
        """``(sequence, expires_ns)`` of every live message that expires by itself."""
        ...

    def expires_ns(self, sequence: int) -> int:
        """When a message expires by itself; 0 if it does not, or is gone."""
        ...

    def get(self, sequence: int) -> StoredMessage | None: ...

    def holds(self, sequence: int) -> bool:
        """Whether there is a message with this sequence; its content is not read."""
        ...

    def read(
        self,
        start_seq: int,
        filter: SubjectFilter | None,
        max_messages: int,
        max_bytes: int,
        last_seq: int,
    ) -> list[StoredMessage]:
        """``rows`` as messages, for those who read few."""
        ...

    def rows(
        self,
        start_seq: int,
        filter: SubjectFilter | None,
        max_messages: int,
        max_bytes: int,
        last_seq: int,
    ) -> list[StoredRow]:
        """Live messages matching ``filter`` in ``[start_seq, last_seq]``, in order.

        Stops after ``max_messages`` or once ``max_bytes`` of payload+headers+subject are exceeded (at
        least one message is returned if there is one).
        """
        ...

    def count(self, filter: SubjectFilter | None, start_seq: int) -> int:
        """Exactly how many live messages at or after ``start_seq`` match; never a scan of them all."""
        ...

    def remove(self, sequences: Collection[int]) -> int:
        """Tombstone these; returns how many existed."""
        ...

    def thin(self, subjects: Iterable[builtins.bytes], keep: int) -> list[int]:
        """Remove all but the newest ``keep``, at least 1, of each of these; returns the sequences."""
        ...

    superseded: list[tuple[int, int]] | None
    """Messages that were the newest of their subject when another came; None, as at first: not noted.
    An empty list has them noted from then on, for ``thin_superseded``; by then, no subject may have more
    than one message, unless ``thinning`` sees to it."""

    def thin_superseded(self) -> list[int]:
        """Remove all but the newest message of each subject; returns the sequences."""
        ...

    def thinning(self, keep: int) -> Thinning:
        """``thin`` for every subject, some at a time; meanwhile ``thin`` leaves it what it has in hand."""
        ...

    def trim(
        self,
        *,
        max_messages: int = -1,
        max_bytes: int = -1,
        before_ns: int = 0,
        work: int = ...,
    ) -> int:
        """Remove from the head until within the limits (-1 or 0: no limit); returns how many.

        Stops after about so much ``work``, in units of about 50 ns; ``is_within`` tells whether it did.
        """
        ...

    def is_within(self, *, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0) -> bool:
        """Whether ``trim`` would remove nothing."""
        ...

    def purge(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> int:
        """Remove matching messages below ``below_seq`` (0: all), keeping the newest ``keep``."""
        ...

    def purging(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> Removal:
        """The same, some at a time; what is appended from now on is not concerned."""
        ...

    def dispose(self, work: int) -> bool:
        """The stream is deleted for good: let go of some of its memory; whether that was all."""
        ...

    def present(self, sequences: Sequence[int]) -> list[int]:
        """Those of these sequences, ascending, that are there."""
        ...

    def headings(self, start_seq: int, most: int) -> list[tuple[int, builtins.bytes]]:
        """Sequence and subject of the next messages, at least one if there is one; reads no records."""
        ...

    def reset_first(self, sequence: int) -> None:
        """On an empty stream only: the next message gets this sequence."""
        ...

    def skip_to(self, sequence: int) -> None:
        """The next message gets this sequence; those in between are never used."""
        ...

    def subject(self, subject: builtins.bytes) -> SubjectState | None: ...

    def subjects(
        self, filter: SubjectFilter | None
    ) -> Iterator[tuple[builtins.bytes, SubjectState]]: ...

    def subject_counts(self, filter: SubjectFilter | None) -> list[tuple[builtins.bytes, int]]:
        """Every subject that matches, and how many messages it has; in no particular order."""
        ...

    def lasts(self, filter: SubjectFilter | None) -> list[int]:
        """The last sequence of each subject that matches, ascending."""
        ...

    def subjects_between(self, start_seq: int, last_seq: int) -> Iterable[builtins.bytes]:
        """The subjects of the messages in ``[start_seq, last_seq]``, each once, in no particular order.

        Those of messages removed meanwhile may be among them.
        """
        ...

    def last_matching(self, filter: SubjectFilter) -> int:
        """The highest live sequence whose subject matches, or 0."""
        ...

    def sequence_at(self, timestamp_ns: int) -> int:
        """The first live sequence stored at or after this time; ``last_seq + 1`` if none."""
        ...

    def next_with_headers(self, start_seq: int) -> int:
        """The first sequence, from ``start_seq`` on, of a message that may have headers; costs nothing."""
        ...

    def deleted(self) -> list[int]:
        """Sequences between the first and the last that are gone."""
        ...


class Removal(Protocol):
    """A removal that is carried out some at a time."""

    @property
    def done(self) -> bool: ...

    @property
    def removed(self) -> int:
        """How many messages so far."""
        ...

    @property
    def gone(self) -> Sequence[int]:
        """The sequences of the last ``run``, except of those that went from the head."""
        ...

    def run(self, work: int) -> int:
        """Do about so much ``work``, in units of about 50 ns; returns how many were removed."""
        ...


class Thinning(Protocol):
    """A pass that brings every subject down to a number of messages, some at a time."""

    @property
    def done(self) -> bool: ...

    def run(self, work: int) -> list[int]:
        """Do about so much ``work``, in units of about 50 ns; returns the sequences removed."""
        ...


class MetaJournal(Protocol):
    """Small durable values by key; deltas accumulate on a key until the next ``put``."""

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]: ...

    def put(self, key: str, value: bytes) -> None: ...

    def append(self, key: str, delta: bytes) -> None: ...

    def delete(self, key: str) -> None: ...

    @property
    def staged(self) -> bool:
        """Whether something waits for the next flush."""
        ...

    def keep_beside(self, key: str, stream: str) -> None:
        """From here on a second copy of this key's value is kept in the directory of that stream."""
        ...

    def loose(self, key: str) -> Sequence[bytes]:
        """Deltas of this key behind something that is lost; ``load`` has what was before."""
        ...

    def was_deleted(self, key: str) -> bool:
        """Whether the last that was written of this key, before the storage was opened, is its deletion."""
        ...


class Finding(Protocol):
    """Something found wrong with what is stored."""

    @property
    def path(self) -> str: ...

    @property
    def what(self) -> str: ...

    @property
    def stream(self) -> str: ...


class Storage(Protocol):
    """A store of many streams with one commit thread (or none, in memory)."""

    @property
    def report(self) -> Sequence[Finding]:
        """What was found wrong so far, up to some number."""
        ...

    @property
    def meta(self) -> MetaJournal: ...

    @property
    def failed(self) -> Exception | None: ...

    @property
    def pending_bytes(self) -> int:
        """How much is staged or being committed, and not durable yet; 0 in memory."""
        ...

    def streams(self) -> list[str]: ...

    def create_stream(self, name: str, *, memory: bool = False) -> StreamStore: ...

    def open_stream(
        self, name: str, expiry_of: Callable[[bytes, int], int] | None = None
    ) -> StreamStore:
        """``expiry_of(headers, timestamp_ns)`` tells when a message staged as expiring does so."""
        ...

    def holds(self, name: str, store: StreamStore) -> bool:
        """Whether this is what it keeps under the name: not after a deletion, nor after a
        creation that failed."""
        ...

    def delete_stream(self, name: str) -> None:
        """Also of a ``barred`` name: what is in its place is put aside, and not touched otherwise."""
        ...

    def barred(self) -> Mapping[str, str]:
        """Names that cannot be used because something that is no stream is in the way, and what it is."""
        ...

    def location(self, name: str) -> str:
        """Where a stream lies, for people."""
        ...

    def is_unfinished(self, name: str) -> bool:
        """Whether the flush that made this stream was cut off: nobody was told that it exists."""
        ...

    def note(self, what: str, stream: str = "") -> None:
        """Report something that was found wrong with what is stored."""
        ...

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        """Commit everything staged so far; ``done`` is called on the owner's thread, in order."""
        ...
