"""A stream on disk that holds nothing yet."""

from __future__ import annotations

from ..format.segment import HEADER_BYTES
from ..index.index import Segment, SubjectTable
from ..index.spans import segment_path
from .file_log import FileLog
from .segment_cache import SegmentCache

__all__ = ["new_log"]


def new_log(
    name: str,
    directory: str,
    cache: SegmentCache,
    *,
    serial: int = 1,
    last_seq: int = 0,
    missing: list[tuple[int, int]] | None = None,
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
        nbytes=0,
        end=HEADER_BYTES,
        cut_tail=False,
        unfit_tail=False,
        jump=last_seq > 0,
        missing=missing or [],
        unrecorded=[],
        last_serial=serial,
    )
