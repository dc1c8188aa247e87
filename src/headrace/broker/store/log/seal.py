"""Finishing a segment file and removing a dead one: chores, which no flush waits for."""

from __future__ import annotations

from ..commit.commit import Chore
from ..commit.writer import Writer
from ..format.segment import encode_footer
from ..index.index import Segment
from ..io.files import explain, is_full, write_all

__all__ = ["seal_chore", "unlink_chore"]


def seal_chore(segment: Segment, names: list[bytes]) -> Chore:
    """Write the footer of a segment whose records are all durable, and give back unused space.

    On a full disk the segment simply stays without: opening the stream will read its records.
    """
    path, data_end, last_seq = segment.path, segment.data_end, segment.final_seq
    arrays = (segment.offsets, segment.sizes, segment.sids, segment.stamps, segment.rel)
    removals = list(segment.removals)
    expiries = segment.expiries.copy() if segment.expiries else None
    bare = segment.bare

    def seal(writer: Writer) -> None:
        footer = encode_footer(data_end, last_seq, arrays, names, removals, expiries, bare=bare)
        fs = writer.fs
        if not fs.exists(path):
            return  # its stream was deleted meanwhile
        try:
            handle = writer.handles.get(path)
            try:
                write_all(fs, handle, footer, data_end)
                fs.truncate(handle, data_end + len(footer))
            except OSError as error:
                if not is_full(error):
                    raise
                fs.truncate(handle, data_end)
            fs.fdatasync(handle)
        except OSError as error:
            if not is_full(error):
                raise explain(error, f"sealing {path}") from error
        writer.forget(path)

    return seal


def unlink_chore(path: str) -> Chore:
    """Remove the file of a dead segment."""
    return lambda writer: writer.remove(path)
