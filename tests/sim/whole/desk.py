"""One consumer, kept by who works at it: what it was given, what it is done with, what may come again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.whole.ledger import Ledger

__all__ = ["Desk"]


@dataclass(eq=False)
class Desk:
    """A durable consumer of one life of a stream.

    ``acked`` was handed to the broker that lives, ``confirmed`` was answered, ``doubtful`` was handed to
    one that died before it answered.
    """

    ledger: Ledger
    name: str
    config: dict[str, Any]
    is_made: bool = False  # confirmed
    position: int = 0  # of what was given for the first time
    given: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)  # given by the broker that lives, and not over
    acked: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)

    @property
    def takes_acks(self) -> bool:
        return bool(self.config["ack_policy"] != "none")

    @property
    def must_see_all(self) -> bool:
        """Whether nothing ends that was not given to somebody who heard it.

        An ack of all before ends deliveries, too, that a broker which died had just sent.
        """
        return bool(self.config["ack_policy"] == "explicit")

    @property
    def settles(self) -> bool:
        """Whether what it is done with leaves the stream."""
        return self.ledger.name == "W"

    def wants(self, subject: bytes) -> bool:
        chosen = self.config.get("filter_subject")
        return chosen is None or chosen.encode() == subject

    def deliver(self, sequence: int, subject: bytes, payload: bytes, syncs: int) -> None:
        ledger, where = self.ledger, f"{self.ledger.name}/{self.name} {sequence}"
        ledger.shows(sequence, subject, payload)
        assert self.wants(subject), f"{where}: not what its filter wants"
        assert syncs < 0 or ledger.every[sequence].mark < syncs, (
            f"{where}: given before it was on the disk"
        )
        assert sequence not in self.confirmed, f"{where}: given again after its confirmed ack"
        assert sequence not in self.acked, f"{where}: given again after its ack"
        ledger.acked_last = max(ledger.acked_last, sequence)
        if sequence > self.position:
            for between in range(self.position + 1, sequence):
                record = ledger.live.get(between)
                skipped = record is not None and self.wants(record.subject)
                assert not skipped, f"{where}: {between} was skipped"
            self.position = sequence
        self.given.add(sequence)
        self.held.add(sequence)

    def ack(self, sequence: int) -> list[int]:
        """An ack was handed over; returns what it ends that was not over before."""
        if sequence > self.position:
            return []  # the broker knows of no such delivery any more, and takes no ack of it
        done = [sequence]
        if self.config["ack_policy"] == "all":
            done = [s for s in self.given if s <= sequence]
        self.held.difference_update(done)
        fresh = [s for s in done if s not in self.acked]
        self.acked.update(fresh)
        if self.settles:
            self.ledger.remove(fresh)
        return fresh

    def confirm(self, sequences: list[int]) -> None:
        """The ack of these was answered."""
        self.confirmed.update(sequences)
        if self.settles:
            self.ledger.gone.update(sequences)

    def died(self) -> None:
        self.doubtful |= self.acked - self.confirmed
        self.acked = set(self.confirmed)
        self.held.clear()

    def open_work(self) -> set[int]:
        """What it has to be given still, however often it was."""
        over = self.acked | self.doubtful
        return {s for s, r in self.ledger.live.items() if self.wants(r.subject) and s not in over}

    def pending_after(self, sequence: int) -> int:
        """``num_pending`` of a consumer that has come to this sequence."""
        live = self.ledger.live.items()
        return sum(1 for s, record in live if s > sequence and self.wants(record.subject))
