"""Every live sequence of every subject: made only for streams whose subjects are asked about often.

A stream that keeps the newest few messages of each of many subjects asks for the next oldest one of a
subject with every message. Searching the log for it would cost as much as there are subjects.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from .index import Segment, SubjectTable
from .views import All

_SLACK = 32


class Occurrences:
    """Sequences by subject id, ascending. Removed ones are dropped when met at an end."""

    __slots__ = ("_heads", "_lists")

    def __init__(self, subjects: int) -> None:
        self._lists: list[array[int]] = [array("Q") for _ in range(subjects)]
        self._heads: list[int] = [0] * subjects

    def add(self, sid: int, sequence: int) -> None:
        while sid >= len(self._lists):
            self._lists.append(array("Q"))
            self._heads.append(0)
        self._lists[sid].append(sequence)

    def first(self, sid: int, holds: Callable[[int, int], bool]) -> int:
        """The lowest sequence of ``sid`` for which ``holds(sid, sequence)``."""
        sequences, head = self._lists[sid], self._heads[sid]
        while not holds(sid, sequences[head]):
            head += 1
        if head > _SLACK and 2 * head > len(sequences):
            del sequences[:head]
            head = 0
        self._heads[sid] = head
        return sequences[head]

    def last(self, sid: int, holds: Callable[[int, int], bool]) -> int:
        """The highest sequence of ``sid`` for which ``holds(sid, sequence)``."""
        sequences = self._lists[sid]
        while not holds(sid, sequences[-1]):
            sequences.pop()
        return sequences[-1]


def list_occurrences(segments: Sequence[Segment], table: SubjectTable, first: int) -> Occurrences:
    """Those of all messages from ``first`` on. Raises StoreReadError."""
    for segment in segments:
        if segment.live:
            segment.ensure()
    found = Occurrences(len(table.names))
    everything = All(table)
    for segment in segments:
        if segment.live:
            start, stop = segment.lower(first), len(segment)
            for position in everything.positions(segment, start, stop):
                found.add(segment.sids[position], segment.sequence(position))
    return found
