"""How long something took, many times: counts by length, as a scraper takes them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_NS: Final = tuple(
    round(seconds * 1e9)
    for seconds in (
        0.00025,
        0.0005,
        0.001,
        0.0025,
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        1,
        2.5,
        5,
    )
)
"""Upper ends of the classes; longer ones are counted in a last class."""


class Durations:
    """Written by one thread; others may read while it writes, and see a moment's numbers."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.total_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_NS, duration_ns)] += 1
        self.total_ns += duration_ns

    def describe(self) -> dict[str, object]:
        """``count``, ``seconds`` in all, and ``at_most``: how many took at most so many seconds."""
        counts = list(self.counts)
        so_far, at_most = 0, {}
        for bound, count in zip(BOUNDS_NS, counts, strict=False):
            so_far += count
            at_most[f"{bound / 1e9:g}"] = so_far
        return {"count": sum(counts), "seconds": self.total_ns / 1e9, "at_most": at_most}
