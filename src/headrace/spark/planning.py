"""Splitting a range of sequences into tasks. Pure: numbers in, numbers out."""

from __future__ import annotations

import itertools
from typing import NamedTuple


class Slice(NamedTuple):
    """One task: the sequences ``(lo, hi]``, and of them only these partitions (empty: all).

    ``since_ns``: every message of the batch was stored at or after this time (0: not known). ``epoch``: when
    the stream that was planned for was created.
    """

    lo: int
    hi: int
    partitions: tuple[int, ...] = ()
    since_ns: int = 0
    epoch: str = ""

    @property
    def width(self) -> int:
        return self.hi - self.lo


def split_by_sequence(lo: int, hi: int, *, max_tasks: int, min_messages: int) -> list[Slice]:
    """Contiguous slices of nearly equal width that together are exactly ``(lo, hi]``.

    A task costs about 50 ms however little it reads. So there are only as many as get ``min_messages``
    sequences each, and at most ``max_tasks``. An empty range has no slice.
    """
    width = hi - lo
    if width <= 0:
        return []
    tasks = max(1, min(max_tasks, width // max(1, min_messages)))
    bounds = [lo + width * i // tasks for i in range(tasks + 1)]
    return [Slice(a, b) for a, b in itertools.pairwise(bounds)]


def split_by_partition(lo: int, hi: int, *, partitions: int, max_tasks: int) -> list[Slice]:
    """Slices that each read the whole range for some partitions; every partition is in exactly one.

    All messages of one partition are in one task, in order. With fewer tasks than partitions, a task has
    several. The assignment depends only on the two numbers, so a batch that runs again has the same tasks.
    An empty range has no slice.
    """
    if hi <= lo:
        return []
    tasks = max(1, min(max_tasks, partitions))
    if tasks == 1:
        return [Slice(lo, hi)]
    return [Slice(lo, hi, tuple(range(task, partitions, tasks))) for task in range(tasks)]
