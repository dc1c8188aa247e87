"""What the files behind one say of it.

The watermark may be lost, and what is left of a torn write stays in its file when the store has long gone
on in others: they know what was durable before them, and what was removed.
"""

from __future__ import annotations

from functools import partial

from ..format.record import COMMIT, REMOVAL, ScannedRecord, ranges_of, scan
from ..format.segment import HEADER_BYTES
from ..index.spans import coalesce, subtract
from ..io.files import is_full
from ..log.inventory import SegmentFile, read_file, twice
from ..log.segment_cache import SegmentCache


class Later:
    """Reads ``files``, those behind the one at hand, the first time that they are asked."""

    def __init__(self, cache: SegmentCache) -> None:
        self._cache = cache
        self.files: list[SegmentFile] = []
        self._durable = 0
        self._removals: list[tuple[int, int]] = []

    def durable(self) -> int:
        """Up to which sequence everything was durable when they were written.

        Raises OSError for want of memory or descriptors.
        """
        self._ask()
        return self._durable

    def removed(self, first: int, last: int) -> bool:
        """Whether they say that all of these messages were removed. Raises OSError as ``durable``."""
        self._ask()
        return first <= last and not subtract([(first, last)], coalesce(self._removals))

    def _ask(self) -> None:
        files, self.files = self.files, []
        for file in files:
            if file.summary is not None:  # it was sealed once it was durable itself
                self._durable = max(self._durable, file.summary.last_seq)
                self._removals += file.summary.removals
            else:
                self._scan(file)

    def _scan(self, file: SegmentFile) -> None:
        try:
            data = twice(partial(read_file, self._cache, file.path, file.size))
        except OSError as error:
            if is_full(error):
                raise
            return  # it says nothing now, as will be told when it is its turn
        for item in scan(data, HEADER_BYTES, len(data), file.header.salt):
            if item.kind == COMMIT:
                self._durable = max(self._durable, item.sequence)
            elif item.kind == REMOVAL:
                self._removals += ranges_of(
                    data, ScannedRecord(REMOVAL, item.offset, item.size, 0, 0, 0, 0)
                )
