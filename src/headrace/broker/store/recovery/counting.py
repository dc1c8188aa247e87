"""What is left in the segments of a stream that is opened, by the removals recorded in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..format.segment import Summary
from ..index.index import Segment, SubjectTable


def apply_removals(
    segments: Sequence[Segment],
    summaries: Mapping[Segment, Summary],
    removals: Sequence[tuple[int, int]],
) -> int:
    """Take these ranges out, which are sorted; how many bytes went. Raises StoreReadError."""
    nbytes = 0
    for segment in segments:
        if not len(segment):
            continue
        low, high = segment.base, segment.last_seq
        for first, last in removals:
            if first <= low and last >= high and segment is not segments[-1]:
                listed = summaries.get(segment)
                unread = listed is not None and segment.load is not None
                nbytes += listed.nbytes if unread and listed else sum(segment.sizes)
                if unread:
                    segment.vacate()
                else:
                    segment.dead = len(segment)
                    segment.alive = bytearray(len(segment))
                break
            if first <= high and last >= low:
                nbytes += _remove(segment, first, last)
        segment.counted = 0
    return nbytes


def _remove(segment: Segment, first: int, last: int) -> int:
    segment.ensure()
    start, stop = segment.lower(first), segment.upper(last)
    if start >= stop:
        return 0
    if segment.alive is None:
        segment.alive = bytearray(b"\1" * len(segment))
    segment.alive[start:stop] = bytes(stop - start)
    segment.dead += stop - start
    return sum(segment.sizes[start:stop])


def count_subjects(
    segments: Sequence[Segment], summaries: Mapping[Segment, Summary], table: SubjectTable
) -> None:
    """Fill the table with what is left."""
    for segment in segments:
        listed = summaries.get(segment)
        if listed is not None and not segment.dead and segment.load is not None:
            for name, count, first, last in listed.subjects:
                sid = table.intern(name)
                segment.counts[sid] = count
                table.add(sid, segment.base + first, segment.base + last, count)
            segment.counted = len(segment)
            segment.weight = listed.nbytes
        elif segment.live:
            segment.ensure()
            for sid, count in segment.live_counts().items():
                # The bounds may be wider than what is left: readers narrow them.
                table.add(sid, segment.base, segment.last_seq, count)
                table.loose.add(sid)


def first_live(segments: Sequence[Segment], last_seq: int) -> int:
    """The first sequence that is left, one beyond the last if none is."""
    for segment in segments:
        if segment.live:
            return segment.first_live(0)
    return last_seq + 1
