"""A stream on disk that holds nothing yet."""

from __future__ import annotations

from collections.abc import Sequence

from ..index.index import Segment, SubjectTable
from ..index.spans import segment_path
from .file_log import FileLog
from .segment_cache import SegmentCache


def new_log(
    name: str,
    directory: str,
    cache: SegmentCache,
    *,
    serial: int = 1,
    last_seq: int = 0,
    missing: Sequence[tuple[int, int]] = (),
) -> FileLog:
    """An empty stream; its first segment is created by the next flush."""
    segment = Segment(serial, last_seq + 1, salt=cache.salt(), path=segment_path(directory, serial))
    segment.bare = True
    return FileLog(
        name,
        directory,
        cache,
        [segment],
        SubjectTable(),
        last_seq=last_seq,
        first=last_seq + 1,
        jump=last_seq > 0,
        missing=missing,
        last_serial=serial,
    )
