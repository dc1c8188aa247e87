"""What a stream holds, kept by who knows every word that was said to the broker, to be read.

While the broker lives the ledger foretells it exactly: what was handed over is taken in order. When the
power goes it is not known how far the disk had come; ``reconcile`` says what may be found, and goes on
from what is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from headrace.message import StoredMessage

__all__ = ["Ledger", "Record"]


@dataclass(slots=True)
class Record:
    """A message that was handed over. ``mark`` is how many syncs there had been."""

    subject: bytes
    payload: bytes
    name: bytes
    mark: int


@dataclass
class Ledger:
    """One life of one stream; ``keep`` messages of each subject, -1 for all."""

    name: str
    life: int
    keep: int = -1
    last: int = 0
    acked_last: int = 0
    live: dict[int, Record] = field(default_factory=dict)
    every: dict[int, Record] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)  # removed, and that was confirmed
    cause: dict[int, int] = field(default_factory=dict)  # removed for a message, which is this one
    names: dict[bytes, int] = field(default_factory=dict)
    unsure: set[bytes] = field(default_factory=set)  # names of what was removed as the power went
    back: set[int] = field(default_factory=set)  # whose removal was lost with the power
    groups: list[tuple[int, int]] = field(default_factory=list)  # all or none of these
    version: int = 0
    acked_version: int = 0

    def append(self, subject: bytes, payload: bytes, mark: int, name: bytes = b"") -> int:
        self.last = sequence = self.last + 1
        self.live[sequence] = self.every[sequence] = Record(subject, payload, name, mark)
        if name:
            self.names[name] = sequence
        if self.keep > 0:
            self.thin(subject, sequence)
        return sequence

    def thin(self, subject: bytes, cause: int = 0) -> None:
        of_subject = [s for s, record in self.live.items() if record.subject == subject]
        self.remove(of_subject[: -self.keep], cause)

    def set_keep(self, keep: int) -> None:
        self.keep = keep
        for subject in {record.subject for record in self.live.values()}:
            self.thin(subject)

    def remove(self, sequences: Iterable[int], cause: int = 0) -> list[int]:
        """Remove those which are there; returns them."""
        removed = [sequence for sequence in sequences if sequence in self.live]
        for sequence in removed:
            del self.live[sequence]
            self.cause[sequence] = cause
        return removed

    def last_of(self, subject: bytes) -> int:
        return max((s for s, record in self.live.items() if record.subject == subject), default=0)

    # -- what is found

    def shows(
        self, sequence: int, subject: bytes, payload: bytes, gone: set[int] | None = None
    ) -> None:
        """The broker showed this message to who asked when those of ``gone`` were known to be."""
        record = self.every.get(sequence)
        where = f"{self.name} {sequence}"
        assert record is not None, f"{where}: shown, and never published"
        assert (record.subject, record.payload) == (subject, payload), f"{where}: other bytes"
        gone = self.gone if gone is None else gone
        assert sequence not in gone, f"{where}: shown after its removal was confirmed"

    def equals(self, found: list[StoredMessage], last: int) -> None:
        """Nothing is in flight: the stream is what the ledger says."""
        shown = {m.sequence: (m.subject, m.payload) for m in found}
        expected = {s: (record.subject, record.payload) for s, record in self.live.items()}
        missing, extra = expected.keys() - shown.keys(), shown.keys() - expected.keys()
        assert shown == expected, f"{self.name}: without {sorted(missing)}, with {sorted(extra)}"
        assert last == self.last, f"{self.name}: last is {last}, not {self.last}"

    def reconcile(self, found: list[StoredMessage], last: int, named: Container[int] = ()) -> None:
        """The power was gone: judge what is found, and go on from it.

        The store has ``named`` messages as lost; nothing else may be.
        """
        name = self.name
        assert last >= self.acked_last, (
            f"{name}: {self.acked_last} was acknowledged, last is {last}"
        )
        assert last <= self.last, f"{name}: {self.last} were published, last is {last}"
        shown = {message.sequence for message in found}
        for message in found:
            self.shows(message.sequence, message.subject, message.payload)
        for sequence in self.every:
            if sequence > last or sequence in shown or sequence in named:
                continue
            subject = self.every[sequence].subject
            newer = sum(1 for s in shown if s > sequence and self.every[s].subject == subject)
            if 0 < self.keep <= newer:
                continue  # a limit was back that had been raised, or messages that had been deleted
            assert sequence not in self.live, f"{name} {sequence}: lost (last is {last})"
            by = self.cause[sequence]
            assert by <= last, f"{name} {sequence}: gone for {by}, which is not there"
        for first, end in self.groups:
            assert last < first or last >= end, f"{name}: part of the batch {first}-{end}"
        if self.keep > 0:
            subjects = [message.subject for message in found]
            crowded = {s for s in subjects if subjects.count(s) > self.keep}
            assert not crowded, f"{name}: more than {self.keep} of {crowded}"
        self.back |= shown - self.live.keys()
        self.last = last
        self.every = {s: record for s, record in self.every.items() if s <= last}
        self.live = {s: self.every[s] for s in sorted(shown)}
        self.names = {record.name: s for s, record in self.live.items() if record.name}
        self.unsure = {record.name for record in self.every.values()} - self.names.keys()
        self.groups = [group for group in self.groups if group[1] <= last]
