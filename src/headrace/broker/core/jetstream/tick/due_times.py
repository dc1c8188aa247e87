"""What is due when: sequences by time, eight bytes each, without looking at those that are not due."""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import Final

_GRAIN_NS: Final = 250_000_000  # times are rounded up to this
_ENTRIES: Final = 65_536  # with fewer entries it does not matter how many are of something gone


class DueTimes:
    """Sequences in buckets of a quarter of a second. It only ever grows ahead and empties behind.

    An entry is a reminder, not the truth: whether the sequence is still there has to be looked up. Entries
    of what is gone stay until they are due; ``is_stale`` says when a rebuild without them is worth it.
    """

    __slots__ = ("_buckets", "_entries", "_entries_max", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []
        self._entries = 0
        self._entries_max = _ENTRIES

    def __bool__(self) -> bool:
        return bool(self._order)

    def add(self, time_ns: int, sequence: int) -> None:
        """Remind of a sequence at a time, or up to a quarter of a second later."""
        bucket = -(-time_ns // _GRAIN_NS)
        entries = self._buckets.get(bucket)
        if entries is None:
            entries = self._buckets[bucket] = array("Q")
            heappush(self._order, bucket)
        entries.append(sequence)
        self._entries += 1

    @property
    def is_stale(self) -> bool:
        """Whether there are more than twice as many entries as when it was last ``rebuilt``."""
        return self._entries > self._entries_max

    def rebuilt(self) -> None:
        """Every entry is of something that is there."""
        self._entries_max = 2 * self._entries + _ENTRIES

    def next_ns(self) -> int:
        """When the next are due; only to be asked while there are any."""
        return self._order[0] * _GRAIN_NS

    def has_begun(self, now_ns: int) -> bool:
        """Whether it may be that something is due by now, but for the rounding."""
        return bool(self._order) and self._order[0] * _GRAIN_NS < now_ns + _GRAIN_NS

    def due(self, now_ns: int, most: int = 1 << 62) -> list[int]:
        """Take out what is due by now, at most ``most``."""
        return self._take(now_ns, most)

    def begun(self, now_ns: int, most: int) -> list[int]:
        """Take out what may be due by now, but for the rounding, at most ``most``."""
        return self._take(now_ns + _GRAIN_NS - 1, most)

    def _take(self, until_ns: int, most: int) -> list[int]:
        found: list[int] = []
        while self._order and self._order[0] * _GRAIN_NS <= until_ns and len(found) < most:
            bucket = self._buckets[self._order[0]]
            room = most - len(found)
            found.extend(bucket[-room:])
            del bucket[-room:]
            if not bucket:
                del self._buckets[heappop(self._order)]
        self._entries -= len(found)
        return found
