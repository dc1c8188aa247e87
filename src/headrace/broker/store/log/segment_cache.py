"""What the file streams of one storage share: settings, read handles, and two caches with one budget."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....clock import Clock
from ..commit.commit import Chore
from ..index.index import Chunk, Segment
from ..io.files import FileSystem, Handles, unreadable
from ..io.findings import Finding
from .compaction import Compactor
from .log import StreamLog

if TYPE_CHECKING:
    from .file_log import FileLog

BLOCK_BYTES: Final = 256 * 1024
_BLOCKS_MIN: Final = 8


class Recent:
    """Recently appended records, still in memory; the oldest leave first, once they are durable."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: OrderedDict[int, tuple[FileLog, Segment, Chunk]] = OrderedDict()
        self.nbytes = 0

    def add(self, owner: FileLog, segment: Segment, chunk: Chunk) -> None:
        """A chunk that is going to be filled."""
        self._chunks[id(chunk)] = (owner, segment, chunk)

    def grow(self, chunk: Chunk, nbytes: int) -> None:
        """The chunk got so many more bytes."""
        chunk.nbytes += nbytes
        self.nbytes += nbytes

    def discard(self, segment: Segment) -> None:
        for chunk in segment.chunks:
            self._drop(chunk)
        segment.chunks.clear()

    def shrink(self) -> None:
        """Let go of what is beyond the limit, as far as it may go."""
        while self.nbytes > self._limit and self._chunks:
            owner, segment, chunk = next(iter(self._chunks.values()))
            if segment.chunks and segment.chunks[0] is chunk:
                if not owner.let_go(segment, chunk):
                    return
                segment.chunks.pop(0)
            self._drop(chunk)

    def _drop(self, chunk: Chunk) -> None:
        if self._chunks.pop(id(chunk), None) is not None:
            self.nbytes -= chunk.nbytes


class Blocks:
    """Stretches of segment files as read from disk: whole records beginning in one BLOCK_BYTES."""

    def __init__(self, fs: FileSystem, handles: Handles, limit: int) -> None:
        self._fs = fs
        self._handles = handles
        self._limit = max(_BLOCKS_MIN, limit // BLOCK_BYTES)
        self._blocks: OrderedDict[tuple[Segment, int], tuple[int, bytes]] = OrderedDict()

    def cached(self, segment: Segment, number: int, end: int) -> tuple[int, bytes] | None:
        """Where the block begins and its bytes, if it is here and reaches to ``end``."""
        block = self._blocks.get((segment, number))
        if block is None or block[0] + len(block[1]) < end:
            return None
        self._blocks.move_to_end((segment, number))
        return block

    def load(self, segment: Segment, number: int) -> tuple[int, bytes] | None:
        """Read a block; None if the file ends in it. The index says where its records lie.

        Raises StoreReadError.
        """
        offsets = segment.offsets
        first = bisect_left(offsets, number * BLOCK_BYTES)
        last = bisect_left(offsets, (number + 1) * BLOCK_BYTES) - 1
        if segment.chunks:
            last = min(last, segment.chunks[0].first - 1)  # the rest may not be written yet
        start = offsets[first]
        length = offsets[last] + segment.sizes[last] - start
        data = self.read(segment, start, length)
        if len(data) != length:
            return None
        self._blocks[segment, number] = (start, data)
        if len(self._blocks) > self._limit:
            self._blocks.popitem(last=False)
        return start, data

    def read(self, segment: Segment, offset: int, length: int) -> bytes:
        """Read bytes of a segment file; fewer if it ends before.

        Raises StoreReadError if the disk, or the system, cannot read them now.
        """
        try:
            return self._fs.pread(self._handles.get(segment.path), length, offset)
        except OSError as error:
            self._handles.drop(segment.path)
            raise unreadable(error, segment.path) from error

    def forget(self, segment: Segment, number: int) -> None:
        """Do not take this block from memory again: something in it is not as it should be."""
        self._blocks.pop((segment, number), None)

    def discard(self, segment: Segment) -> None:
        self._handles.drop(segment.path)
        for key in [key for key in self._blocks if key[0] is segment]:
            del self._blocks[key]


class SegmentCache:
    """What a file stream is given by its storage."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        *,
        clock: Clock,
        segment_bytes: int,
        cache_bytes: int,
        handles: int,
        salt: Callable[[], int],
        report: Callable[[Finding], None],
        mark_dirty: Callable[[StreamLog], None],
        restage: Callable[[StreamLog], None],
        chore: Callable[[Chore], None],
        notify: Callable[[], None],
    ) -> None:
        self.fs = fs
        self.root = root
        self.clock = clock
        self.segment_bytes = segment_bytes
        self.salt = salt
        self.report = report
        self.mark_dirty = mark_dirty  # before a stream changes; raises StoreError if it must not
        self.restage = restage  # a stream has something for the next flush
        self.chore = chore
        self.compactor = Compactor(chore, notify, clock)
        self.is_full = False  # the disk has refused something since the store was opened
        self.handles = Handles(fs, handles)
        self.recent = Recent(cache_bytes - cache_bytes // 8)
        self.blocks = Blocks(fs, self.handles, cache_bytes // 8)

    def discard(self, segment: Segment) -> None:
        self.compactor.forget(segment)
        self.recent.discard(segment)
        self.blocks.discard(segment)
