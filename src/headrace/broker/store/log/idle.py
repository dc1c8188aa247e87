"""Segments that nobody asks about: their index is left to the footer of their file, until somebody does.

So the memory that a stream takes is that of what is written and read, and not of all that it keeps. A
segment is left only when nothing of it was removed, and when the segment behind it is on disk: it will
never be appended to again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from ....clock import Clock
from ....errors import StoreReadError
from ....limits import INDEX_BYTES
from ..format.segment import Footer, Summary, decode_summary
from ..index.index import Segment
from ..io.findings import damage
from .file_log import FileLog
from .inventory import ArrayLoader, missing_of, read_now
from .memory_log import MemoryLog
from .reader import SegmentCache

MESSAGE_BYTES: Final = 20
REST_NS: Final = 5_000_000_000
"""Between two looks at a segment: one that was not asked for meanwhile is left."""
_LOOKS: Final = 200  # segments at a time: a tenth of a millisecond …
_LEFT_MAX: Final = 4  # … and so many of them are left: each takes half a millisecond
RESTS_MAX: Final = 60
"""Looks at a segment that is read back again and again; one more with each time doubles them up to that."""
GIVEN_BACK: Final = 16 * 1024 * 1024
"""So many bytes left in a round are worth giving back to the system."""
SUBJECT_MESSAGES_MIN: Final = 8  # with fewer messages for each of its subjects little would be won


def give_back() -> bool:
    """Give what the C library holds free back to the system; whether it can.

    glibc keeps what lies below something in use. Takes 5 ms for 100 MiB.
    """
    trim = _trim()
    return trim is not None and bool(trim(0))


@cache
def _trim() -> Any:
    try:
        import ctypes  # most never have so much to give back

        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, ImportError, OSError, TypeError):
        return None  # another C library, or a Python that cannot call it


class Idle:
    """Goes round the segments of all streams, some at a time, between what they are asked.

    As long as the arrays take no more than ``INDEX_BYTES``, they all stay.
    """

    def __init__(self, cache: SegmentCache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._due_ns = 0
        self._round: Iterator[tuple[FileLog, Segment | None]] = iter(())
        self._is_over = True
        self._counted = 0
        self._nbytes = 0
        self._left = 0

    def look(self, logs: Mapping[str, FileLog | MemoryLog]) -> None:
        """Go on with a round, or begin the next when it is time. Nobody may be using a segment now."""
        if self._is_over:
            if self._clock.monotonic_ns() < self._due_ns:
                return
            self._round, self._is_over = _segments(list(logs.values())), False
        left = 0
        for _ in range(_LOOKS):
            found = next(self._round, None)
            if found is None:
                self._end()
                return
            left += self._pass_by(*found)
            if left == _LEFT_MAX:
                return

    def _pass_by(self, log: FileLog, segment: Segment | None) -> bool:
        """Look at one segment; whether it was left."""
        if segment is None or segment.load is not None:
            return False
        nbytes = MESSAGE_BYTES * len(segment)
        if self._nbytes > INDEX_BYTES and _is_at_rest(segment) and may_leave(log, segment):
            self._nbytes -= nbytes
            self._left += nbytes
            segment.leave(Reload(log, self._cache))
            return True
        self._counted += nbytes
        return False

    def _end(self) -> None:
        self._is_over = True
        self._nbytes, self._counted = self._counted, 0
        self._due_ns = self._clock.monotonic_ns() + REST_NS
        if self._left >= GIVEN_BACK:
            self._left = 0
            give_back()


def _segments(logs: Iterable[FileLog | MemoryLog]) -> Iterator[tuple[FileLog, Segment | None]]:
    """All but the tails; a stream that has but one counts as well."""
    for log in logs:
        if isinstance(log, FileLog):
            yield log, None
            for segment in log.segments[:-1]:
                yield log, segment


def _is_at_rest(segment: Segment) -> bool:
    """Whether it was not asked for lately; the more often it was read back, the longer."""
    if segment.used:
        segment.used, segment.rested = False, 0
        return False
    segment.rested += 1
    return segment.rested >= min(1 << segment.reloads, RESTS_MAX)


def may_leave(log: FileLog, segment: Segment) -> bool:
    """Whether the file says all there is to know of a segment, and whether it pays."""
    ending = segment.ending
    if ending is None or ending.footer.data_end != segment.data_end or not segment.stamps:
        return False
    if segment.dead or segment.alive is not None or segment.head or segment.spoilt:
        return False
    if segment.chunks or len(segment) < SUBJECT_MESSAGES_MIN * len(segment.live_counts()):
        return False
    behind = log.segment_index(segment.base) + 1
    if behind >= len(log.segments) or log.segments[behind - 1] is not segment:
        return False  # it is gone, or its stream is
    return log.segments[behind].durable and segment.last_seq <= log.durable_seq


class Reload(msgspec.Struct, eq=False):
    """Loads the arrays of a segment that was left, by what its footer says. Raises StoreReadError."""

    log: FileLog
    cache: SegmentCache

    def __call__(self, segment: Segment) -> None:
        assert segment.ending is not None  # it would not have been left
        footer = segment.ending.footer
        summary = self._summary(segment, footer) or _remembered(segment)
        ArrayLoader(
            footer, summary, self.cache, lambda: self.log.table, self._report, self._mismatch
        )(segment)
        segment.reloads = min(segment.reloads + 1, RESTS_MAX)

    def _summary(self, segment: Segment, footer: Footer) -> Summary | None:
        try:
            data = read_now(self.cache, segment.path, footer.summary_len, footer.summary_at)
        except StoreReadError:
            return None  # perhaps the records can be read
        return decode_summary(data, footer)

    def _report(self, path: str, offset: int, what: str) -> None:
        self.cache.report(damage(path, offset, what, self.log.name))

    def _mismatch(self, segment: Segment, summary: Summary, gone: list[tuple[int, int]]) -> None:
        log = self.log
        removed = [pair for each in log.segments for pair in each.removals]
        messages, nbytes, known = missing_of(segment, summary, gone, removed)
        if known:
            log.lost.add(known, nbytes)
        log.removals.lessened(segment, messages, nbytes)


def _remembered(segment: Segment) -> Summary:
    """What is known of a segment that was left, without its file: not which subjects its messages have."""
    return Summary(
        messages=segment.n,
        last_seq=segment.final_seq,
        nbytes=segment.weight,
        last_ns=segment.last_ns,
        max_ns=segment.newest_ns(),
        end_rel=segment.end_rel,
        subjects=[],
        removals=segment.removals,
        sparse=segment.end_rel != segment.n - 1,
    )
