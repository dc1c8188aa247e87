"""Opening a stream's directory: what is there, what is damaged, where to go on.

Sealed segments are taken from their footers. The others are read record by record, in order, until the
first damage that may be a torn write: one that lies beyond everything known to have been durable. What
follows it was never acknowledged. Damage before that point is skipped and reported; the sequences lost
in it are never used again. Nothing is deleted or overwritten: after damage, a new segment begins.

Begin with ``open_log``. ``Blanks`` are stretches of a file that hold no record: given back, or damaged.
``Later`` is what the files behind one say of it: the watermark may be lost, and what is left of a torn
write stays in its file when the store has long gone on in others. They know what was durable before them,
and what was removed. ``CopiesRead`` are the copies of removals beside the segments, read where the
segments may not have all of them any more.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from .format.record import (
    COMMIT,
    FLAG_EXPIRES,
    FLAG_HEADERS,
    FLAG_OPEN,
    HEAD_BYTES,
    MESSAGE,
    OVERHEAD,
    REMOVAL,
    SKIP,
    U32,
    U64,
    WATERMARK_BYTES,
    ScannedRecord,
    Watermark,
    decode_watermark,
    ranges_of,
    scan,
)
from .format.removal_copy import RemovalCopy, copy_path, decode_copy
from .format.segment import HEADER_BYTES, Ending, Expiries, Footer, Summary, no_expiry
from .index.index import Segment, SubjectTable
from .index.spans import Losses, coalesce, subtract
from .io.files import is_full, read_around, read_start, write_all
from .io.findings import Quarantine, damage
from .log.appends import ExpiryOf
from .log.chores import has_hole
from .log.file_log import FileLog, new_log
from .log.inventory import (
    ArrayLoader,
    Inventory,
    RemovalCopies,
    SegmentFile,
    missing_of,
    read_file,
    twice,
)
from .log.reader import SegmentCache

_EVERYTHING: Final = 1 << 63
_SPECIAL: Final = FLAG_EXPIRES | FLAG_OPEN


class Blank:
    """A stretch that may have been given back, and which messages are missing there."""

    def __init__(self, segment: Segment, offset: int, content: bytes, first: int) -> None:
        self.segment = segment
        self.offset = offset
        self.size = len(content)
        self.content = content.strip(b"\0") and content
        self.first = first
        self.last = first - 1


class Blanks:
    """Those of one stream, in the order they were found."""

    def __init__(self) -> None:
        self._found: list[Blank] = []
        self._open: list[Blank] = []

    def note(self, segment: Segment, offset: int, content: bytes, first: int) -> None:
        """No record lies here, where a message ``first`` or a later one is to be expected."""
        self._open.append(Blank(segment, offset, content, first))

    def close(self, sequence: int) -> bool:
        """The next message has this sequence; whether there were blanks before it."""
        for blank in self._open:
            blank.last = sequence - 1
        return self.end()

    def end(self) -> bool:
        """The file is at its end; whether there were blanks before that."""
        found, self._open = self._open, []
        self._found += found
        return bool(found)

    def damaged(
        self, removals: Sequence[tuple[int, int]], quarantine: Quarantine, root: str
    ) -> Iterator[Blank]:
        """Those that are no holes, as something there was not removed; what they hold is kept."""
        for blank in self._found:
            if not _covered(blank.first, blank.last, removals):
                if blank.content:
                    quarantine.keep(blank.segment.path, root, blank.offset, blank.content)
                yield blank


def _covered(first: int, last: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(low <= first <= last <= high for low, high in ranges)


def _make_durable(cache: SegmentCache, file: SegmentFile, marked: Watermark, data: bytes) -> None:
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


def _apply_removals(
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


def _count_subjects(
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


def open_log(
    name: str,
    directory: str,
    cache: SegmentCache,
    quarantine: Quarantine,
    expiry_of: ExpiryOf | None = None,
) -> FileLog:
    """The stream in ``directory`` as far as it can be read. Raises StoreFormatError, StoreError."""
    return _Opening(name, directory, cache, quarantine, expiry_of or no_expiry).run()


class _Opening:
    """One opening, step by step."""

    def __init__(
        self,
        name: str,
        directory: str,
        cache: SegmentCache,
        quarantine: Quarantine,
        expiry_of: ExpiryOf,
    ) -> None:
        self._name = name
        self._directory = directory
        self._cache = cache
        self._quarantine = quarantine
        self._expiry_of = expiry_of
        self._open_from = -1  # in the tail: where messages begin whose end is missing
        self._table = SubjectTable()
        self._segments: list[Segment] = []
        self._summaries: dict[Segment, Summary] = {}
        self._removals: list[tuple[int, int]] = []
        self._expected = 1  # the sequence the next message should have
        self._known = Watermark(0, 0, 0)
        self._marked = self._known  # as it stands beside the segments
        self._later = Later(cache)
        self._nbytes = 0
        self._stopped = False  # met a torn write: the rest was never acknowledged
        self._end = HEADER_BYTES
        self._cut_tail = False
        self._unfit = False
        self._jump = False
        self._inventory = Inventory(name, directory, cache, self._report)
        self._log: FileLog | None = None
        self._to_seal: list[Segment] = []
        self._blanks = Blanks()
        self._copies = CopiesRead(directory, cache)
        self._losses = Losses()
        self._missing: list[tuple[int, int]] = []  # sequences in segments that cannot be read now
        self._gaps: list[tuple[str, int, int]] = []  # between files, and who follows them

    def run(self) -> FileLog:
        mark_path = self._directory + "/watermark"
        data = read_start(self._cache.fs, mark_path, WATERMARK_BYTES)
        self._known, damaged = decode_watermark(data)
        self._marked = self._known
        if damaged:
            self._report(mark_path, 0, "the watermark is damaged and was ignored")
        files = self._inventory.files()
        self._copies.read(self._inventory.copies, files)
        durable = max(self._known.sequence, self._copies.last_seq)
        self._known = self._known._replace(sequence=durable)
        before = 0
        for number, file in enumerate(files):
            self._later.files = files[number + (file.summary is None) :]
            if not self._stopped and not self._follows(before, file):
                self._stopped = True
            if self._stopped:
                self._put_aside(files[number:])
                break
            following = files[number + 1].header.base if number + 1 < len(files) else None
            if file.summary is not None and file.footer is not None:
                self._sealed(file, file.footer, file.summary)
            else:
                try:
                    data = twice(partial(read_file, self._cache, file.path, file.size))
                except OSError as error:
                    self._inventory.bar(file.header.serial, file.path, error)
                    continue
                self._scanned(file, data, following)
                _make_durable(self._cache, file, self._marked, data[: self._end])
            before = file.header.serial
        for path in self._inventory.alien:  # not before: an unreadable one shows what is torn
            self._quarantine.take(path, self._cache.root)
        return self._finish(files)

    def _follows(self, before: int, file: SegmentFile) -> bool:
        """Whether a file continues where the one before it ends, or has a reason not to.

        ``before`` is the serial of the file before it, 0 if it is the first one.
        """
        header = file.header
        if header.base <= self._expected:
            return True
        between = range(before + 1, header.serial)
        if not self._inventory.barred.keys().isdisjoint(between):
            self._note_missing(header.base - 1)
            return True
        if header.jump:
            return True
        if between and self._inventory.unreadable.isdisjoint(between):
            self._gaps.append((file.path, self._expected, header.base - 1))
            return True  # a segment without live messages was removed, or so it should be
        if self._torn(self._expected):
            return False
        self._report(
            file.path, 0, "the segment before it is cut short", (self._expected, header.base - 1)
        )
        return True

    def _note_missing(self, last: int) -> None:
        """From where we are up to this sequence everything is in files that cannot be read now."""
        where = ", ".join(path for _, path in sorted(self._inventory.barred.items()))
        self._report(
            where, 0, f"messages {self._expected} to {last} cannot be read now; none is removed"
        )
        self._missing.append((self._expected, last))

    def _put_aside(self, files: list[SegmentFile]) -> None:
        """Files behind a torn write, the last first: what is left must still look torn."""
        for file in reversed(files):
            self._report(file.path, 0, "it follows a torn write and was never acknowledged")
            self._quarantine.take(file.path, self._cache.root)

    # -- segments

    def _sealed(self, file: SegmentFile, footer: Footer, summary: Summary) -> None:
        segment = self._segment(file)
        segment.sealed = True
        segment.n = summary.messages
        segment.first_rel = min([first for _, _, first, _ in summary.subjects], default=0)
        segment.last_ns = summary.last_ns
        segment.end_rel = summary.end_rel
        segment.max_ns = summary.max_ns
        segment.data_end, segment.ending = footer.data_end, Ending(footer, summary.max_ns)
        segment.removals = summary.removals
        segment.expiries, segment.bare = summary.expiries, summary.bare
        segment.load = ArrayLoader(
            footer, summary, self._cache, self._subject_table, self._report, self._mismatch
        )
        self._summaries[segment] = summary
        self._removals += summary.removals
        self._nbytes += summary.nbytes
        segment.final_seq = summary.last_seq
        self._expected = max(self._expected, summary.last_seq + 1)
        self._end, self._cut_tail = footer.data_end, True

    def _segment(self, file: SegmentFile) -> Segment:
        header = file.header
        self._open_from = -1
        segment = Segment(header.serial, header.base, salt=header.salt, path=file.path)
        segment.durable = True
        segment.generation = file.generation
        segment.jump, segment.tells = header.jump, header.tells
        self._segments.append(segment)
        self._expected = max(self._expected, header.base)
        self._unfit = False
        return segment

    def _scanned(self, file: SegmentFile, data: bytes, following: int | None) -> None:
        segment = self._segment(file)
        found = list(scan(data, HEADER_BYTES, len(data), segment.salt))
        durable_end = self._known.end if self._known.serial == segment.serial else 0
        durable_seq = self._known.sequence
        for item in found:
            if item.kind == COMMIT:
                durable_end = max(durable_end, U64.unpack_from(data, item.offset + HEAD_BYTES)[0])
                durable_seq = max(durable_seq, item.sequence)
        if self._known.serial > segment.serial or file.header.compacted:
            durable_end = _EVERYTHING
        self._known = self._known._replace(sequence=max(durable_seq, self._known.sequence))
        rel = array("I")
        compacted = file.header.compacted
        damaged = self._walk(segment, data, found, rel, durable_end, following, compacted)
        # A checksum may end in zeros: what is in use ends with the last record or beyond it.
        segment.data_end = max(self._end, len(data.rstrip(b"\0")))
        if rel and rel[-1] != len(rel) - 1:
            segment.rel = rel
            self._unfit = True
        self._nbytes += sum(segment.sizes)
        self._cut_tail = False
        segment.final_seq = self._expected - 1
        if following is not None and not damaged and not self._stopped:
            self._to_seal.append(segment)

    def _walk(
        self,
        segment: Segment,
        data: bytes,
        found: list[ScannedRecord],
        rel: array[int],
        durable_end: int,
        following: int | None,
        compacted: bool,
    ) -> bool:
        """Take over the records up to a torn write; whether there was damage to acknowledged bytes."""
        damaged = hole = False
        base, intern = segment.base, self._table.intern
        offsets, sizes = segment.offsets.append, segment.sizes.append
        sids, stamps = segment.sids.append, segment.stamps.append
        self._end = HEADER_BYTES
        self._open_from = -1
        segment.bare = not any(item.kind == MESSAGE and item.flags & FLAG_HEADERS for item in found)
        for item in found:
            kind, offset, size, sequence, stamp, flags, subject_len = item
            if kind == MESSAGE:
                if sequence < self._expected or (following is not None and sequence >= following):
                    continue  # superseded: what was taken back or torn, and then written elsewhere
                if self._blanks.close(sequence):
                    pass  # what is missing may have been given back: see the end of the opening
                elif sequence > self._expected and (hole or not compacted):
                    if not compacted and self._torn(self._expected):
                        self._stop(segment, offset)
                        break
                    self._lost(segment, offset, self._expected, sequence - 1)
                    damaged = True
                hole = False
                at = offset + HEAD_BYTES + (4 if flags & FLAG_HEADERS else 0)
                if flags & _SPECIAL or self._open_from >= 0:
                    self._note_flags(segment, data, item, rel)
                offsets(offset)
                sizes(size)
                sids(intern(data[at : at + subject_len]))
                stamps(stamp)
                rel.append(sequence - base)
                self._expected = sequence + 1
            elif kind in (REMOVAL, SKIP):
                self._stated(segment, data, item, hole, compacted)
                hole = False
            elif kind == 0:
                self._unfit = True
                if offset < durable_end and has_hole(data, offset, offset + size):
                    content = data[offset : offset + size]
                    self._blanks.note(segment, offset, content, self._expected)
                    damaged = hole = True
                    self._end = offset + size
                    continue
                if following == self._expected or (
                    following is not None and self._later.removed(self._expected, following - 1)
                ):
                    break  # the end of a segment that was left because of a torn write
                if offset >= durable_end and self._torn(self._expected):
                    self._stop(segment, offset)
                    break
                damaged = hole = True
                self._quarantine.keep(
                    segment.path, self._cache.root, offset, data[offset : offset + size]
                )
                self._report(segment.path, offset, f"{size} damaged bytes were skipped")
            self._end = offset + size
        self._blanks.end()
        return damaged

    def _stated(
        self, segment: Segment, data: bytes, found: ScannedRecord, hole: bool, compacted: bool
    ) -> None:
        """A statement: what was removed, and up to where there were messages; ``hole``: behind damage."""
        last = found.sequence
        if found.kind == REMOVAL:
            ranges = ranges_of(
                data, ScannedRecord(found.kind, found.offset, found.size, 0, 0, 0, 0)
            )
            segment.removals += ranges
            self._removals += ranges
        if last < self._expected:
            return
        # Where a file was not compacted, what is skipped need not have been there.
        tells = found.kind == REMOVAL or compacted
        if tells and not self._blanks.close(last + 1) and hole:
            self._lost(segment, found.offset, self._expected, last)
        self._expected = last + 1

    def _note_flags(
        self, segment: Segment, data: bytes, found: ScannedRecord, rel: array[int]
    ) -> None:
        """Take note of a message that expires, and of where one begins that lacks its end."""
        if not found.flags & FLAG_OPEN:
            self._open_from = -1
        elif self._open_from < 0:
            self._open_from = len(rel)
        if found.flags & FLAG_EXPIRES:
            at = found.offset + HEAD_BYTES
            start = at + 4 + found.subject_len
            headers = data[start : start + U32.unpack_from(data, at)[0]]
            if segment.expiries is None:
                segment.expiries = Expiries()
            time_ns = self._expiry_of(headers, found.timestamp_ns)
            segment.expiries.add(found.sequence - segment.base, time_ns)

    def _drop_open(self) -> None:
        """Messages at the end that stand or fall with one that is missing were never acknowledged."""
        if self._open_from < 0 or not self._segments:
            return
        tail, start = self._segments[-1], self._open_from
        first = tail.sequence(start) if tail.load is None and start < len(tail) else 0
        if not first or not self._torn(first):
            return
        self._report(tail.path, tail.offsets[start], "messages without their end were ignored")
        self._nbytes -= sum(tail.sizes[start:])
        self._end, self._expected = tail.offsets[start], first
        tail.cut(start)
        tail.dead = 0
        self._unfit = True

    def _torn(self, sequence: int) -> bool:
        """Whether a message of this sequence may never have become durable."""
        if sequence > self._known.sequence:
            known = max(self._known.sequence, self._later.durable())
            self._known = self._known._replace(sequence=known)
        return sequence > self._known.sequence

    def _stop(self, segment: Segment, offset: int) -> None:
        self._stopped = True
        self._unfit = True
        self._report(segment.path, offset, "a torn write at the end was ignored")

    def _subject_table(self) -> SubjectTable:
        return self._table if self._log is None else self._log.table

    def _mismatch(self, segment: Segment, summary: Summary, gone: list[tuple[int, int]]) -> None:
        messages, nbytes, known = missing_of(segment, summary, gone, self._removals)
        losses = self._losses if self._log is None else self._log.lost
        if known:
            losses.add(known, nbytes)
        if self._log is not None:
            self._log.removals.lessened(segment, messages, nbytes)
            return
        segment.spoilt = True
        self._nbytes -= nbytes

    def _left_of_losses(self) -> list[tuple[int, int]]:
        """What of the messages that are lost nobody had removed."""
        return subtract(self._losses.ranges, coalesce(self._removals))

    # -- the whole

    def _finish(self, files: list[SegmentFile]) -> FileLog:
        self._drop_open()
        mark_path = self._directory + "/watermark"
        known = self._known.sequence
        serials = [*self._inventory.barred, *(file.header.serial for file in files)]
        last_serial = max([self._known.serial, *serials], default=0)
        if last_serial in self._inventory.barred:
            # How far it went nobody knows: go on beyond all that fits into a segment.
            most = max(known, self._expected - 1) + self._cache.segment_bytes // OVERHEAD
            self._note_missing(most)
            self._expected = most + 1
            self._unfit = self._jump = True
        elif known >= self._expected:
            where = self._segments[-1].path if self._segments else mark_path
            self._report(where, self._end, "the end is missing", (self._expected, known))
            self._expected = known + 1
            self._unfit = self._jump = True
        last_seq = self._expected - 1
        unrecorded = self._copies.unrecorded(self._removals)
        self._removals += unrecorded
        if not self._segments:
            empty = new_log(
                self._name,
                self._directory,
                self._cache,
                serial=last_serial + 1,
                last_seq=last_seq,
                missing=self._missing,
                is_placed=True,
            )
            empty.lost.add(self._left_of_losses(), self._losses.nbytes)
            return empty
        tail = self._segments[-1]
        tail.ensure()
        gone = _apply_removals(self._segments, self._summaries, coalesce(self._removals))
        self._nbytes -= gone  # not before: reading a segment may have changed it, too
        self._report_blanks()
        _count_subjects(self._segments, self._summaries, self._table)
        if self._table.mended:
            what = "subjects that no protocol line can carry are shown with _ for such bytes"
            self._report(self._directory, 0, what)
        if tail.rel is not None or tail.base + len(tail) != self._expected:
            self._unfit = True
        self._log = log = FileLog(
            self._name,
            self._directory,
            self._cache,
            self._segments,
            self._table,
            last_seq=last_seq,
            first=first_live(self._segments, last_seq),
            nbytes=self._nbytes,
            end=self._end,
            cut_tail=self._cut_tail,
            unfit_tail=self._unfit,
            jump=self._jump,
            missing=self._missing,
            unrecorded=coalesce([*self._check_gaps(files), *unrecorded]),
            copies=self._copies.go_on(tail),
            last_serial=max(self._inventory.barred, default=0),
        )
        log.lost.add(self._left_of_losses(), self._losses.nbytes)
        for segment in self._to_seal:
            if segment is tail:
                continue  # what followed it was put aside
            self._cache.chore(log.seal_chore(segment))
        return log

    def _check_gaps(self, files: list[SegmentFile]) -> list[tuple[int, int]]:
        """Report gaps between the files that no removal explains.

        Where no file is of a version that records these, they are what removed segments have left:
        returns them, to be recorded.
        """
        if not any(file.header.tells for file in files):
            return [(low, high) for _, low, high in self._gaps]
        removals = coalesce(self._removals)
        for path, low, high in self._gaps:
            for lost in subtract([(low, high)], removals):
                self._report(path, 0, "the file of the segment before it is not there", lost)
        return []

    def _report_blanks(self) -> None:
        """What looks like a hole is one if all that lay there was removed, or else it is damage."""
        removals, root = coalesce(self._removals), self._cache.root
        for blank in self._blanks.damaged(removals, self._quarantine, root):
            what = f"{blank.size} damaged bytes were skipped"
            self._report(blank.segment.path, blank.offset, what)
            if blank.first <= blank.last:
                self._lost(blank.segment, blank.offset, blank.first, blank.last)

    def _lost(self, segment: Segment, offset: int, first: int, last: int) -> None:
        self._report(segment.path, offset, "acknowledged records are damaged", (first, last))

    def _report(
        self, path: str, offset: int, what: str, lost: tuple[int, int] | None = None
    ) -> None:
        if lost is not None:
            self._losses.add([lost])
        self._cache.report(damage(path, offset, what, self._name, lost))
