"""Work on the segment files of a stream that no flush waits for: finishing, emptying and removing them.

On a full disk there is no room for the copy that a compaction makes. What a stream has lost from its head
leaves zeros at the beginning of a segment, in place: the file keeps its length, and its blocks go. Before
that, whatever else those bytes say is said again at the end of the stream, so that opening it finds nothing
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....errors import StoreReadError
from ..commit.commit import Chore
from ..commit.writer import Writer
from ..format.segment import HEADER_BYTES, footer_steps
from ..index.index import Segment
from ..index.spans import coalesce
from ..io.files import PUNCH_BYTES, explain, is_full, write_all

_HOLE_WORTH: Final = 64 * 1024  # fewer bytes are not worth a hole
_HOLE_RANGES: Final = 256  # more removals are not said again: the room for it may be missing


def has_hole(data: bytes, start: int, stop: int) -> bool:
    """Whether what is no record may have been given back, in whole or, when the power went, in part."""
    first = start + -start % PUNCH_BYTES
    nothing = bytes(PUNCH_BYTES)
    blocks = range(first, stop - PUNCH_BYTES + 1, PUNCH_BYTES)
    return any(data[at : at + PUNCH_BYTES] == nothing for at in blocks)


def hole_before(
    head: Segment, floor: int, durable_seq: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """Up to where a stream's head segment can be given back, if messages before ``floor`` are gone for good.

    With that the removals that have to be said again; None when it is not worth it, or not possible now.
    """
    if floor <= head.base or not head.durable:
        return None
    try:
        head.ensure()
    except StoreReadError:
        return None  # where it could end is not known now; the next flush that fails asks again
    position = head.lower(floor)
    if position >= len(head) or head.sequence(position) > durable_seq:
        return None
    end = head.offsets[position]
    ranges = coalesce([*head.removals, (head.base, floor - 1)])
    worth = end - max(HEADER_BYTES, head.hollow) >= _HOLE_WORTH
    return (end, ranges) if worth and len(ranges) <= _HOLE_RANGES else None


def punch_chore(segment: Segment, end: int) -> Chore:
    """Give back what lies before ``end`` in a segment's file; a disk that can not keeps it."""
    path, start = segment.path, max(HEADER_BYTES, segment.hollow)
    segment.hollow = end - end % PUNCH_BYTES
    aligned = segment.hollow

    def punch(writer: Writer) -> None:
        fs = writer.fs
        if not fs.exists(path):
            return  # its stream was deleted meanwhile, or it was compacted
        try:
            handle = writer.handles.get(path)
            if fs.punch(handle, start, aligned - start):
                fs.fdatasync(handle)  # first: what is damaged by the rest lies beside a hole then
                write_all(fs, handle, bytes(end - aligned), aligned)
                fs.fdatasync(handle)
        except OSError as error:
            if not is_full(error):
                raise explain(error, f"giving back room in {path}") from error

    return punch


def seal_chore(
    segment: Segment, names: list[bytes], is_final: Callable[[], bool] = lambda: True
) -> Chore:
    """Write the footer of a segment whose records are all durable, and give back unused space.

    It is made a step at a time, between which batches are committed. Nothing is written if ``is_final`` says
    by then that the file may be another stream's, or is appended to again. On a full disk the segment simply
    stays without: opening the stream will read its records.
    """
    path, data_end, last_seq = segment.path, segment.data_end, segment.final_seq
    arrays = (segment.offsets, segment.sizes, segment.sids, segment.stamps, segment.rel)
    removals = list(segment.removals)
    expiries = segment.expiries.copy() if segment.expiries else None
    pieces = footer_steps(data_end, last_seq, arrays, names, removals, expiries, bare=segment.bare)
    end = data_end

    def seal(writer: Writer) -> bool:
        nonlocal end
        fs = writer.fs
        if not (is_final() and fs.exists(path)):
            return False  # its stream was deleted meanwhile, or what followed it was taken back
        piece = ending = None
        try:
            piece = next(pieces)
        except StopIteration as stopped:
            ending = stopped.value
        if piece == b"":
            return True
        try:
            handle = writer.handles.get(path)
            try:
                if piece is None:
                    fs.truncate(handle, end)
                else:
                    write_all(fs, handle, piece, end)
                    end += len(piece)
            except OSError as error:
                if not is_full(error):
                    raise
                piece = ending = None
                fs.truncate(handle, data_end)
            fs.fdatasync(handle)
        except OSError as error:
            if not is_full(error):
                raise explain(error, f"sealing {path}") from error
            piece = ending = None
        if piece is None:
            writer.forget(path)
            segment.ending = ending
        return piece is not None

    return seal


def unlink_chore(*paths: str) -> Chore:
    """Remove the files of a dead segment, its own one last."""
    return lambda writer: writer.remove(*paths)
