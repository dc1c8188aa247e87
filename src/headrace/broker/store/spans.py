"""Runs of sequences, and the names of the files that hold them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

__all__ = ["coalesce", "runs", "segment_path"]


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


def runs(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Inclusive ranges of single sequences, each given once, in any order."""
    ordered = sorted(sequences)
    if not ordered:
        return []
    gaps = [(low, high) for low, high in pairwise(ordered) if high - low != 1]
    starts = [ordered[0], *[high for _, high in gaps]]
    ends = [*[low for low, _ in gaps], ordered[-1]]
    return list(zip(starts, ends, strict=True))
