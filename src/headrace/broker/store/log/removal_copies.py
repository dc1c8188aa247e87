"""Saying removals again, beside the segment that records them; see ``format/removal_copy``."""

from __future__ import annotations

from collections.abc import Iterable

from ..commit.writer import CopyWrite
from ..format.record import encode_removals
from ..format.removal_copy import copy_path, encode_start
from ..index.index import Segment
from ..index.spans import coalesce


class RemovalCopies:
    """Where the next removals of one stream go. ``serial`` is of the segment whose copy is whole, up to
    ``end``; 0 if there is none.
    """

    def __init__(self, directory: str, serial: int = 0, end: int = 0) -> None:
        self._directory = directory
        self._serial = serial
        self._end = end

    def write(
        self, tail: Segment, last_seq: int, records: list[bytes], ranges: Iterable[tuple[int, int]]
    ) -> CopyWrite:
        """What is to be written for removals that go into this segment."""
        at = self._end
        if tail.serial != self._serial:
            self._serial, at = tail.serial, 0
            everything = coalesce([*tail.removals, *ranges])
            records = [
                encode_start(tail.serial, tail.salt),
                *encode_removals(last_seq, everything, tail.salt),
            ]
        data = b"".join(records)
        self._end = at + len(data)
        return CopyWrite(copy_path(self._directory, tail.serial), at, data)

    def forget(self) -> None:
        """A batch failed: what was to be written may be missing."""
        self._serial = 0
