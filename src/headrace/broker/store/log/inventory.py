"""The segment files of a stream: which there are, whose they are, what their footers say.

``RemovalCopies`` says removals again, beside the segment that records them; see ``format/removal_copy``.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from ....errors import StoreReadError
from ..commit.writer import CopyWrite
from ..format.record import FLAG_HEADERS, HEAD_BYTES, MESSAGE, encode_removals, scan
from ..format.removal_copy import NAME_END, copy_path, encode_start
from ..format.segment import (
    HEADER_BYTES,
    TRAILER_BYTES,
    Footer,
    Header,
    Summary,
    decode_arrays,
    decode_header,
    decode_summary,
    decode_trailer,
)
from ..index.index import Segment, SubjectTable
from ..index.spans import coalesce, ranges_of_each, subtract
from ..io.files import is_full, read_around, unreadable
from ..meta.spare import SPARE
from .chores import unlink_chore
from .reader import SegmentCache

_COPY: Final = re.compile(rf"(\d{{10}}){re.escape(NAME_END)}")
_OURS: Final = frozenset({"watermark", SPARE, SPARE + ".tmp"})
_FOOTER_READ: Final = 64 * 1024
_NAME: Final = re.compile(r"(\d{10})(?:\.(\d+))?\.seg(?:\.tmp)?")

_Arrays: TypeAlias = "tuple[array[int], array[int], array[int], array[int], array[int] | None]"
Report = Callable[..., None]
"""``report(path, offset, what, lost=None)``."""


Result = TypeVar("Result")


class SegmentFile(NamedTuple):
    """A segment file: its header, and its footer if it has a whole one."""

    path: str
    header: Header
    generation: int
    size: int
    footer: Footer | None
    summary: Summary | None


class Inventory:
    """Looks through a stream's directory.

    ``alien`` are files that do not belong, ``unreadable`` the serials of segments without a whole
    header, ``barred`` those of segments the disk, or the system, does not let us read at all, ``copies``
    those of segments that have a copy of their removals.
    """

    def __init__(self, name: str, directory: str, cache: SegmentCache, report: Report) -> None:
        self._name = name
        self._directory = directory
        self._cache = cache
        self._report = report
        self.alien: list[str] = []
        self.unreadable: set[int] = set()
        self.barred: dict[int, str] = {}
        self.copies: list[int] = []

    def files(self) -> list[SegmentFile]:
        found: dict[int, SegmentFile] = {}
        leftovers: list[tuple[str, int]] = []
        for entry in self._cache.fs.listdir(self._directory):
            path = f"{self._directory}/{entry}"
            serial, generation = _place(entry)
            if entry in _OURS:
                continue
            if (copy := _COPY.fullmatch(entry)) is not None:
                self.copies.append(int(copy[1]))
                continue
            if not serial:
                self._report(path, 0, "not a file of the store; left alone")
                continue
            if entry.endswith(".seg.tmp"):
                leftovers.append((path, serial))
                continue
            try:
                file = twice(partial(self._examine, path, serial, generation))
            except OSError as error:
                self.bar(serial, path, error)
                continue
            if file is None:
                self.alien.append(path)
                continue
            rival = found.get(serial)
            if rival is None or rival.generation < generation:
                found[serial], rival = file, rival
            if rival is not None:
                leftovers.append((rival.path if found[serial] is file else path, serial))
        for path, serial in leftovers:
            if serial in found:  # what a compaction did not come to remove: all of it is there
                self._cache.chore(unlink_chore(path))
            else:
                self.alien.append(path)
        for serial in found:
            self.barred.pop(serial, None)  # of another generation, which holds the same
        return [found[serial] for serial in sorted(found)]

    def bar(self, serial: int, path: str, error: OSError) -> None:
        """Go on without a file that cannot be read; want of memory or handles is another matter."""
        if is_full(error):
            raise error
        self.barred[serial] = path
        self._report(path, 0, f"cannot be read now, and stays as it is: {error.strerror or error}")

    def _examine(self, path: str, serial: int, generation: int) -> SegmentFile | None:
        fs = self._cache.fs
        handle = fs.open(path)
        try:
            size = fs.size(handle)
            data = read_around(fs, handle, HEADER_BYTES, 0)
            header, damaged = decode_header(data, path)
            if header is None:
                self.unreadable.add(serial)
                if data.strip(b"\0"):
                    self._report(path, 0, "the segment has no readable header; put aside")
                return None
            if header.name != self._name or header.serial != serial:
                self._report(
                    path, 0, f"a segment of stream {header.name!r}, out of place; put aside"
                )
                return None
            if damaged:
                self._report(path, 0, "one of the two headers is damaged")
            return self._with_footer(path, header, generation, size, handle)
        finally:
            fs.close(handle)

    def _with_footer(
        self, path: str, header: Header, generation: int, size: int, handle: int
    ) -> SegmentFile:
        nothing = SegmentFile(path, header, generation, size, None, None)
        if size < HEADER_BYTES + TRAILER_BYTES:
            return nothing
        fs = self._cache.fs
        start = max(HEADER_BYTES, size - _FOOTER_READ)
        data = read_around(fs, handle, size - start, start)
        footer = decode_trailer(data[-TRAILER_BYTES:], size)
        if footer is None:
            return nothing
        at = footer.summary_at - start
        if at >= 0:
            raw = data[at : at + footer.summary_len]
        else:
            raw = read_around(fs, handle, footer.summary_len, footer.summary_at)
        summary = decode_summary(raw, footer)
        if summary is None:
            self._report(path, footer.summary_at, "the footer is damaged; the records were read")
        return SegmentFile(path, header, generation, size, footer, summary)


def _place(entry: str) -> tuple[int, int]:
    """Serial and generation in the name of a segment file; serial 0 if it is something else."""
    match = _NAME.fullmatch(entry)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


class ArrayLoader(msgspec.Struct, eq=False):
    """Loads the arrays of a sealed segment when they are first needed.

    Everything is read and checked before the segment changes: when reading fails, with StoreReadError,
    it is as before, and the next who needs it tries again. Should the arrays be damaged, the records
    are read instead. Should some of those be damaged, too, then ``mismatch`` is called, with what the
    footer said, and the sequences that are not there: the segment now has fewer messages.
    """

    footer: Footer
    summary: Summary
    cache: SegmentCache
    table: Callable[[], SubjectTable]
    report: Report
    mismatch: Callable[[Segment, Summary, list[tuple[int, int]]], None]

    def __call__(self, segment: Segment) -> None:
        footer, summary = self.footer, self.summary
        try:
            found = self._read_arrays(segment)
        except StoreReadError:
            records, what = self._read_records(segment), "cannot be read"
            if len(records[0]) < summary.messages:
                raise  # what is missing may be there when the index can be read
        else:
            if found is not None:
                self._install(segment, found)
                return
            records, what = self._read_records(segment), "is damaged"
        what = f"the index in the footer {what}; the records were read"
        self.report(segment.path, footer.data_end, what)
        segment.ending = None  # whoever left it to its footer again would read the records again
        self._install(segment, records)
        missing = summary.messages - len(segment)
        if missing:
            self.report(segment.path, HEADER_BYTES, f"{missing} records are damaged, too")
            there = range(len(segment)) if segment.rel is None else segment.rel
            gone = sorted(set(range(summary.end_rel + 1)).difference(there))
            self.mismatch(segment, summary, ranges_of_each(segment.base + rel for rel in gone))

    def _read_arrays(self, segment: Segment) -> _Arrays | None:
        """What the footer says; None if it is damaged."""
        footer, summary = self.footer, self.summary
        length = footer.summary_at - footer.data_end
        for _ in range(2):  # what a disk says once need not be what is on it
            data = read_now(self.cache, segment.path, length, footer.data_end)
            arrays = decode_arrays(data, footer, summary.messages, summary.sparse)
            if arrays is not None:
                offsets, sizes, local, stamps, rel = arrays
                if local and not summary.subjects:
                    return None  # nobody knows what its numbers mean
                intern = self.table().intern
                places = [intern(name) for name, _, _, _ in summary.subjects]
                return offsets, sizes, _renumbered(local, places), stamps, rel
        return None

    def _install(self, segment: Segment, arrays: _Arrays) -> None:
        segment.offsets, segment.sizes, segment.sids, segment.stamps, segment.rel = arrays
        segment.load = None

    def _read_records(self, segment: Segment) -> _Arrays:
        data = read_now(self.cache, segment.path, segment.data_end, 0)
        offsets, sizes, sids, stamps = array("I"), array("I"), array("I"), array("q")
        rel = array("I")
        intern = self.table().intern
        last = segment.base + self.summary.end_rel
        for item in scan(data, HEADER_BYTES, len(data), segment.salt):
            lowest = segment.base + (rel[-1] + 1 if rel else 0)
            if item.kind == MESSAGE and lowest <= item.sequence <= last:
                at = item.offset + HEAD_BYTES + (4 if item.flags & FLAG_HEADERS else 0)
                offsets.append(item.offset)
                sizes.append(item.size)
                sids.append(intern(data[at : at + item.subject_len]))
                stamps.append(item.timestamp_ns)
                rel.append(item.sequence - segment.base)
        follows = not rel or rel[-1] == len(rel) - 1
        return offsets, sizes, sids, stamps, None if follows else rel


def _renumbered(local: array[int], places: list[int]) -> array[int]:
    """The subjects of messages by the numbers of the table; ``places`` are those of the file's numbers."""
    if len(places) == 1:
        return array("I", places) * len(local)
    if places == list(range(len(places))):
        return local
    return array("I", map(places.__getitem__, local))


def missing_of(
    segment: Segment,
    summary: Summary,
    gone: list[tuple[int, int]],
    removed: Iterable[tuple[int, int]],
) -> tuple[int, int, list[tuple[int, int]]]:
    """How many messages and bytes a segment has less than its footer said, and which: none if that is
    not known. ``gone`` are the sequences that are not there, ``removed`` those that were removed."""
    messages, nbytes = summary.messages - len(segment), summary.nbytes - sum(segment.sizes)
    if summary.sparse:  # what was removed is not there either
        gone = subtract(gone, coalesce(removed))
    is_known = sum(high - low + 1 for low, high in gone) == messages
    return messages, nbytes, gone if is_known else []


def twice(read: Callable[[], Result]) -> Result:
    """Try to read, once more if that fails: without a file a stream has to do until the next start."""
    try:
        return read()
    except OSError as error:
        if is_full(error):
            raise
        return read()


def read_file(cache: SegmentCache, path: str, size: int) -> bytes:
    """The first ``size`` bytes of a file, with zeros in place of what the disk cannot read."""
    handle = cache.fs.open(path)
    try:
        return read_around(cache.fs, handle, size, 0)
    finally:
        cache.fs.close(handle)


def read_now(cache: SegmentCache, path: str, size: int, offset: int) -> bytes:
    """Bytes of a file, all of them. Raises StoreReadError if the disk cannot read some now."""
    try:
        return cache.fs.pread(cache.handles.get(path), size, offset)
    except OSError as error:
        cache.handles.drop(path)
        raise unreadable(error, path) from error


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
