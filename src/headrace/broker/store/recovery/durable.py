"""What an opening finds beyond the watermark: it can be read, and may not be on disk."""

from __future__ import annotations

from ..format.watermark import Watermark
from ..io.files import write_all
from ..log.inventory import SegmentFile
from ..log.segment_cache import SegmentCache


def make_durable(cache: SegmentCache, file: SegmentFile, marked: Watermark, data: bytes) -> None:
    """Put what was found of a segment on disk, before anybody sees it; ``marked``: what is there already.

    Whoever wrote it may have ended before it was synced, or after a sync that failed: it can be read, and
    the system thinks it need not be written. Gone with the power later, it would take with it what
    consumers have acknowledged since. Raises OSError.
    """
    serial = file.header.serial
    start = marked.end if serial == marked.serial else 0
    if serial < marked.serial or len(data) <= start:
        return
    fs, directory = cache.fs, file.path.rpartition("/")[0]
    handle = cache.handles.get(file.path)
    write_all(fs, handle, data[start:], start)
    fs.fdatasync(handle)
    if serial > marked.serial:
        fs.fsync_dir(directory)
        fs.fsync_dir(directory.rpartition("/")[0])
