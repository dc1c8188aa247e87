"""When messages of a segment expire, for those that do: 12 bytes each, in order of their sequence."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

NEVER_NS = (1 << 63) - 1
"""The time of a message that outlives every limit of age."""


def no_expiry(headers: bytes, timestamp_ns: int) -> int:
    """What to ask where messages do not expire by themselves."""
    return NEVER_NS


class Expiries:
    """Times (ns since the epoch) by sequence relative to the segment's base.

    Entries of removed messages stay until the segment is compacted: who asks looks whether the
    message is still there.
    """

    __slots__ = ("rels", "times_ns")

    def __init__(self, rels: array[int] | None = None, times_ns: array[int] | None = None) -> None:
        self.rels: array[int] = rels if rels is not None else array("I")
        self.times_ns: array[int] = times_ns if times_ns is not None else array("q")

    def __len__(self) -> int:
        return len(self.rels)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.rels, self.times_ns, strict=True)

    def add(self, rel: int, time_ns: int) -> None:
        """Note the time of a message beyond all noted before."""
        self.rels.append(rel)
        self.times_ns.append(time_ns)

    def find(self, rel: int) -> int:
        """The time of a message, or 0 if it does not expire by itself."""
        at = bisect_left(self.rels, rel)
        return self.times_ns[at] if at < len(self.rels) and self.rels[at] == rel else 0

    def cut(self, rel: int) -> None:
        """Forget messages from ``rel`` on."""
        at = bisect_left(self.rels, rel)
        del self.rels[at:]
        del self.times_ns[at:]

    def only(self, rels: Iterable[int]) -> Expiries:
        """A copy with the entries of these messages alone."""
        wanted = set(rels)
        kept = Expiries()
        for rel, time_ns in self:
            if rel in wanted:
                kept.add(rel, time_ns)
        return kept

    def copy(self) -> Expiries:
        """One that another thread may read while this one grows."""
        return Expiries(self.rels[:], self.times_ns[:])
