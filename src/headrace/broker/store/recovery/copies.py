"""The copies of removals beside the segments, read where the segments may not have all of them any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..format.removal_copy import RemovalCopy, copy_path, decode_copy
from ..index.index import Segment
from ..index.spans import coalesce, subtract
from ..io.files import is_full, read_around
from ..log.inventory import SegmentFile, twice
from ..log.removal_copies import RemovalCopies
from ..log.segment_cache import SegmentCache


class CopiesRead:
    """Those of one stream. ``last_seq`` is a sequence up to which, they say, everything was durable."""

    def __init__(self, directory: str, cache: SegmentCache) -> None:
        self._directory = directory
        self._cache = cache
        self._found: dict[int, RemovalCopy] = {}
        self.last_seq = 0

    def read(self, serials: Iterable[int], files: Sequence[SegmentFile]) -> None:
        """Read what there is, but for segments with a whole footer, which has all their removals.

        Raises StoreFormatError, and OSError for want of memory or descriptors.
        """
        there = {file.header.serial: file for file in files}
        for serial in serials:
            file = there.get(serial)
            if file is None or file.summary is None:
                path = copy_path(self._directory, serial)
                copy = self._read(path, serial, file.header.salt if file is not None else None)
                self._found[serial] = copy
                self.last_seq = max(self.last_seq, copy.last_seq)

    def _read(self, path: str, serial: int, salt: int | None) -> RemovalCopy:
        try:
            data = twice(lambda: self._content(path))
        except OSError as error:
            if is_full(error):
                raise
            return RemovalCopy([], 0, 0)  # the segment may have all of it
        return decode_copy(data, path, serial, salt)

    def _content(self, path: str) -> bytes:
        fs = self._cache.fs
        handle = fs.open(path)
        try:
            return read_around(fs, handle, fs.size(handle), 0)
        finally:
            fs.close(handle)

    def unrecorded(self, recorded: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """What they say was removed and no segment does."""
        said = coalesce(pair for copy in self._found.values() for pair in copy.ranges)
        return subtract(said, coalesce(recorded))

    def go_on(self, tail: Segment) -> RemovalCopies:
        """Where the next removals are copied to: behind what is there, if that is whole."""
        copy = self._found.get(tail.serial)
        if copy is None or subtract(coalesce(tail.removals), coalesce(copy.ranges)):
            return RemovalCopies(self._directory)
        return RemovalCopies(self._directory, tail.serial, copy.end)
