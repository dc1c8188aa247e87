"""Offsets of a query that takes a surplus: the messages of the batch that ends here. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import ConfigurationError
from ..offsets import Offset, is_sequence

VERSION = 1


class Run(NamedTuple):
    """Messages with neighbouring sequences, ``first`` to ``last``, delivered one after the other.

    ``delivery``: the consumer's sequence of the first.
    """

    first: int
    last: int
    delivery: int

    @property
    def messages(self) -> int:
        return self.last - self.first + 1


class OverflowOffset(NamedTuple):
    """The batch of this number (0: there was none yet), in the stream created at ``epoch``.

    ``prefix``: what the ack subjects of its messages begin with. ``stored_ns``: when the last message of the
    batch was stored.
    """

    epoch: str
    number: int = 0
    prefix: str = ""
    runs: tuple[Run, ...] = ()
    stored_ns: int = 0

    @property
    def last(self) -> Offset:
        """What the stream is known by: the last message of the batch."""
        sequence = self.runs[-1].last if self.runs else 0
        return Offset(sequence, self.epoch, stored_ns=self.stored_ns)

    @property
    def messages(self) -> int:
        return sum(run.messages for run in self.runs)

    def sequences(self) -> Iterator[int]:
        """The stream sequences of its messages, in order."""
        for run in self.runs:
            yield from range(run.first, run.last + 1)

    def ack_subjects(self) -> Iterator[tuple[int, str]]:
        """Each message's sequence, and the subject on which it is acknowledged.

        Servers go by the two sequences. How often and when it was delivered, which are also in the subject,
        are only for reports.
        """
        for run in self.runs:
            for at in range(run.messages):
                sequence, delivery = run.first + at, run.delivery + at
                yield sequence, f"{self.prefix}.1.{sequence}.{delivery}.0.0"

    def to_dict(self) -> dict[str, Any]:
        """The form Spark keeps in its checkpoint; keys sorted, as Spark compares the text."""
        runs = [list(run) for run in self.runs]
        return {
            "a": self.prefix,
            "epoch": self.epoch,
            "m": runs,
            "n": self.number,
            "stored": self.stored_ns,
            "v": VERSION,
        }

    @classmethod
    def from_dict(cls, raw: object) -> OverflowOffset:
        """Read the output of ``to_dict``. Raises ConfigurationError that says what was found instead."""
        if not isinstance(raw, dict) or "m" not in raw:
            raise ConfigurationError(
                f"the checkpoint's offset is not that of a query with the option 'consumer': {raw!r}"
            )
        if raw.get("v") != VERSION:
            raise ConfigurationError(
                f"the checkpoint's offset has version {raw.get('v')!r}; this release reads version {VERSION}"
            )
        runs = _read(raw["m"])
        prefix, epoch, number = raw.get("a"), raw.get("epoch"), raw.get("n")
        texts = isinstance(prefix, str) and isinstance(epoch, str)
        stored = raw.get("stored", 0)
        if runs is None or not texts or not _is_count(number) or not _is_count(stored):
            raise ConfigurationError(f"the checkpoint's offset is damaged: {raw!r}")
        return cls(str(epoch), int(number or 0), str(prefix), runs, stored)


def _read(raw: object) -> tuple[Run, ...] | None:
    if not isinstance(raw, list):
        return None
    for one in raw:
        if not (isinstance(one, list) and len(one) == 3 and all(map(is_sequence, one))):
            return None
    return tuple(Run(*one) for one in raw)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def runs_of(deliveries: Mapping[int, int]) -> tuple[Run, ...]:
    """The runs of messages, given the consumer's sequence of each stream sequence."""
    runs: list[Run] = []
    for sequence in sorted(deliveries):
        delivery = deliveries[sequence]
        last = runs[-1] if runs else None
        if last and sequence == last.last + 1 and delivery == last.delivery + last.messages:
            runs[-1] = last._replace(last=sequence)
        else:
            runs.append(Run(sequence, sequence, delivery))
    return tuple(runs)


def share_out(
    runs: Sequence[Run], *, max_tasks: int, min_tasks: int, min_messages: int
) -> list[tuple[tuple[int, int], ...]]:
    """The ranges of sequences, first and last, that each task reads: about as many messages each."""
    total = sum(run.messages for run in runs)
    tasks = max(1, min_tasks, min(max_tasks, total // max(1, min_messages)))
    tasks = min(tasks, max(1, total))
    bounds = [total * at // tasks for at in range(1, tasks + 1)]
    shares: list[list[tuple[int, int]]] = [[] for _ in bounds]
    at = done = 0
    for run in runs:
        first = run.first
        while first <= run.last:
            last = min(run.last, first + bounds[at] - done - 1)
            shares[at].append((first, last))
            done += last - first + 1
            first = last + 1
            if done == bounds[at] and at < tasks - 1:
                at += 1
    return [tuple(share) for share in shares if share]
