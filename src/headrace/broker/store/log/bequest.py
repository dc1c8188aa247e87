"""What has to be recorded elsewhere before the file of a dead segment can go."""

from __future__ import annotations

from collections.abc import Sequence

from ..index.index import Segment
from ..index.spans import clip, coalesce, subtract

__all__ = ["place_of", "unsaid"]


def place_of(segments: Sequence[Segment], dead: Segment) -> tuple[int, int]:
    """The sequences a dead segment leaves empty, with what was never used beside it."""
    index = segments.index(dead)
    before = segments[index - 1].last_seq if index else 0
    return before + 1, segments[index + 1].base - 1


def unsaid(segments: Sequence[Segment], index: int) -> list[tuple[int, int]]:
    """Removals in earlier segments that this one records, and none after it."""
    segment = segments[index]
    earlier = coalesce(clip(segment.removals, 1, segment.base - 1))
    said = coalesce(pair for later in segments[index + 1 :] for pair in later.removals)
    return subtract(earlier, said)
