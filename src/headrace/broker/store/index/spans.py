"""Ranges of sequences, what removed segments leave of them, and the names of segment files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from .index import Segment


def segment_path(directory: str, serial: int, generation: int = 0) -> str:
    """Where a segment lies: ``0000000001.seg``, compacted ``0000000001.1.seg`` and so on."""
    return f"{directory}/{serial:010d}{f'.{generation}' if generation else ''}.seg"


def coalesce(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Inclusive ranges, sorted, overlapping and adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            if high > joined[-1][1]:
                joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined


class Losses:
    """What damage has taken of one stream, as far as it is known: what nobody removed and nobody can read."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        """First and last sequence, inclusive, sorted."""
        self.nbytes = 0
        """What these messages took on disk; where that is not known, they are not counted."""

    def add(self, ranges: Iterable[tuple[int, int]], nbytes: int = 0) -> None:
        self.ranges = coalesce([*self.ranges, *ranges])
        self.nbytes += nbytes

    def forget_below(self, sequence: int) -> None:
        """Everything before this sequence was removed, damaged or not."""
        if self.ranges and self.ranges[0][0] < sequence:
            self.ranges = clip(self.ranges, sequence, self.ranges[-1][1])


def ranges_of_each(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Inclusive ranges of single sequences, each given once, in any order."""
    ordered = sorted(sequences)
    if not ordered:
        return []
    gaps = [(low, high) for low, high in pairwise(ordered) if high - low != 1]
    starts = [ordered[0], *[high for _, high in gaps]]
    ends = [*[low for low, _ in gaps], ordered[-1]]
    return list(zip(starts, ends, strict=True))


def clip(ranges: Iterable[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """What of these ranges lies within ``[low, high]``."""
    return [(max(a, low), min(b, high)) for a, b in ranges if a <= high and b >= low]


def subtract(
    ranges: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """What of these ranges is in none of the others; both are sorted, and overlap not among themselves."""
    left: list[tuple[int, int]] = []
    holes = list(others)
    at = 0
    for low, high in ranges:
        while at < len(holes) and holes[at][1] < low:
            at += 1
        number = at
        while number < len(holes) and holes[number][0] <= high:
            if low < holes[number][0]:
                left.append((low, holes[number][0] - 1))
            low = holes[number][1] + 1
            number += 1
        if low <= high:
            left.append((low, high))
    return left


def note_removals(noted: list[tuple[int, int]], ranges: Sequence[tuple[int, int]]) -> None:
    """Add ranges, which are sorted, to those noted; one for the head takes the place of another."""
    if ranges and ranges[0][0] == 1 and noted and noted[0][0] == 1:
        noted[0] = (1, max(noted[0][1], ranges[0][1]))
        noted += ranges[1:]
    elif ranges and ranges[0][0] == 1:
        noted[:0] = ranges
    else:
        noted += ranges


def emptied_range(segments: Sequence[Segment], dead: Segment) -> tuple[int, int]:
    """The sequences a dead segment leaves empty, with what was never used beside it."""
    index = segments.index(dead)
    before = segments[index - 1].last_seq if index else 0
    return before + 1, segments[index + 1].base - 1


def recorded_only_in(segments: Sequence[Segment], index: int) -> list[tuple[int, int]]:
    """Removals in earlier segments that this one records, and none after it."""
    segment = segments[index]
    earlier = coalesce(clip(segment.removals, 1, segment.base - 1))
    said = coalesce(pair for later in segments[index + 1 :] for pair in later.removals)
    return subtract(earlier, said)
