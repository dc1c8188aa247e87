"""What one stream gives to a flush."""

from __future__ import annotations

from ..index.index import Segment

__all__ = ["Part"]


class Part:
    """One stream's share of a flush: what to do when it is durable, and what to undo if it fails."""

    __slots__ = (
        "died",
        "end",
        "first",
        "floor",
        "holes",
        "last_seq",
        "opened",
        "ranges",
        "relog",
        "removed",
        "sealed",
        "tail",
    )

    def __init__(
        self,
        last_seq: int,
        floor: int,
        first: int,
        removed: list[int],
        died: list[Segment],
    ) -> None:
        self.last_seq = last_seq
        self.floor = floor
        self.first = first
        self.removed = removed
        self.died = died
        self.holes: list[tuple[Segment, int]] = []  # … to be given back of segments, up to where
        self.opened: list[Segment] = []  # file streams: segments this part creates
        self.sealed: list[Segment] = []  # … and finishes
        self.tail: Segment | None = None  # … and the tail, with the removals recorded in it
        self.end = 0  # … up to where
        self.ranges: list[tuple[int, int]] = []
        self.relog: list[tuple[int, int]] = []  # … of which these were recorded before, elsewhere
