"""What a group was seen to handle when its members had more than enough to do. Pure.

A group that has shrunk to too few must not shrink so again under the same load. What counts is the share of
the member that owns most: of 14 partitions it has 2 with 7 members, and still 2 with 13. But what was seen
may have had another reason, a slow database, so it is forgotten after a while, and kept twice as long
whenever it turns out again: under a constant load changes become ever rarer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_KEPT_MAX_S: Final = 86_400.0
_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Seen:
    handled: float
    at_ns: int
    kept_s: float


class Experience:
    """The rate that a group was limited to, by the most partitions that one of its members owned.

    Args:
        kept_s: how long it is remembered at first.
    """

    def __init__(self, kept_s: float) -> None:
        self._kept_s = kept_s
        self._seen: dict[int, _Seen] = {}
        self._learning = 0  # of which share, while the group is behind

    def behind(self, share: int, handled: float, now_ns: int) -> None:
        """The group is too far behind, while it handles this much per second."""
        before = self._seen.get(share)
        if before is None:
            kept_s = self._kept_s
        elif self._learning == share:
            kept_s = before.kept_s
        else:
            kept_s = min(2 * before.kept_s, max(_KEPT_MAX_S, self._kept_s))
        self._seen[share] = _Seen(handled, now_ns, kept_s)
        self._learning = share

    def keeping_up(self) -> None:
        """The group is not behind any more: when it is again, that will be another time."""
        self._learning = 0

    def limit(self, share: int, now_ns: int) -> float | None:
        """What the group can handle at most when one member owns so many partitions: not more than when
        it owned fewer. None: that was never seen, or is forgotten."""
        known = [
            seen.handled
            for smaller, seen in self._seen.items()
            if smaller <= share and now_ns - seen.at_ns <= seen.kept_s * _NS
        ]
        return min(known, default=None)
