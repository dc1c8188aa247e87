"""Removals of any size, some at a time: purging, enforcing limits per subject and trimming.

Each call does a bounded amount of work. What ``run`` does in many calls is what it would have done in one:
bounds decide which messages go, and neither later calls nor what comes in between moves them. Work is
counted in units of about 50 ns on a plain machine.

Each step reads what it takes, and only then changes something. When a segment cannot be read now, a call
that has removed something ends there and says how much; one that has removed nothing raises StoreReadError.

``SubjectLimits`` keeps the newest few messages of each subject.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from operator import and_, itemgetter
from typing import TYPE_CHECKING, Final, Protocol

from ....errors import StoreReadError
from ..index.index import Segment, SubjectTable

if TYPE_CHECKING:
    from ....subjects import SubjectFilter
    from .log import StreamLog


EVERYTHING: Final = 1 << 62
_TOGETHER_MIN: Final = 64  # fewer are quicker removed one by one
_WINDOW: Final = 8192  # positions looked at in one go
_SEGMENT: Final = 200  # units: to drop or pass over a segment …
_SUBJECT: Final = 2  # … for each of its subjects
_HEAD: Final = 3  # … a message that goes from the head
_NAME: Final = 5  # … a subject of a deleted stream
_BODY: Final = 2  # … a message in memory
_INSIDE: Final = 20  # … from inside, which is marked and recorded


class Allowance:
    """How much work is left to do now. A step may exceed it a little, but none begins without any."""

    __slots__ = ("left",)

    def __init__(self, work: int) -> None:
        self.left = work


class Chooser(Protocol):
    """Which messages a sweep removes."""

    @property
    def done(self) -> bool:
        """Whether nothing more is to be removed."""

    def wants(self, segment: Segment, allowance: Allowance) -> bool:
        """Whether a segment with live messages may hold any of them."""

    def choose(
        self, segment: Segment, start: int, stop: int, most: int
    ) -> tuple[Sequence[int], int]:
        """Their positions in ``[start, stop)``, at most so many, and where the look ended."""


class Sweep:
    """One pass over a stream, from its head on; ``next`` is the first sequence not looked at."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self.next = 0

    def run(self, chooser: Chooser, stop_seq: int, allowance: Allowance, gone: list[int]) -> bool:
        """Remove what is chosen before ``stop_seq``, noting it in ``gone``; whether that is all.

        Raises StoreReadError; what was removed before is in ``gone``, and the next call goes on there.
        """
        log = self._log
        self.next = max(self.next, log.first_seq)
        while not chooser.done and self.next < stop_seq and self.next <= log.last_seq:
            if allowance.left <= 0:
                return False
            segment = log.segment_of(self.next)
            allowance.left -= _SEGMENT
            is_over = self.next > segment.last_seq or not segment.live
            if is_over or not chooser.wants(segment, allowance):
                self.next = log.after(segment)
                continue
            segment.ensure()
            start, stop = segment.lower(self.next), segment.lower(stop_seq)
            most = max(1, allowance.left // _INSIDE)
            positions, end = chooser.choose(segment, start, min(stop, start + _WINDOW), most)
            allowance.left -= end - start + _INSIDE * len(positions)
            if positions:
                gone += segment.sequences(positions)
                log.removals.drop_inside(segment, positions)
            if end == stop:
                self.next = log.after(segment)
                log.note_sparse(segment)
            else:
                self.next = segment.sequence(end)
        return True


class Purging:
    """One purge. Messages appended after it was made are none of its business."""

    def __init__(
        self, log: StreamLog, filter: SubjectFilter | None, below_seq: int, keep: int
    ) -> None:
        self._log = log
        self._filter = filter
        self._keep = keep  # so many matches below the cut are still to be passed over
        self._cut = below_seq if 0 < below_seq <= log.last_seq else log.last_seq + 1
        self._sweep = Sweep(log)
        self.removed = 0
        self.gone: Sequence[int] = ()  # by the last run, except from the head
        self.done = False

    def run(self, work: int = EVERYTHING) -> int:
        """Remove some; returns how many. Raises StoreError, and can be called again.

        With StoreReadError nothing was removed, and the next call begins where this one stopped.
        """
        log = self._log
        log.check_writable()
        had, allowance = log.removals.remains, Allowance(work)
        self.gone = ()
        if self._keep:
            self._pass_over(allowance)
        if not self._keep and allowance.left > 0:
            self._load(allowance.left)
            try:
                self._remove(allowance)
            except StoreReadError:
                if had == log.removals.remains:
                    raise
        removed = had - log.removals.remains
        if removed:
            log.removals.after_removal()
        self.removed += removed
        return removed

    def _load(self, work: int) -> None:
        """Read what so much work takes, as far as can be told before. Raises StoreReadError."""
        log, view = self._log, self._log.view(self._filter)
        at = max(self._sweep.next, log.first_seq)
        while work > 0 and log.messages and at < self._cut and at <= log.last_seq:
            segment = log.segment_of(at)
            matching = view.total(segment) if segment.live else 0
            if self._filter is not None:
                work -= _SEGMENT + bool(matching) * len(segment) + _INSIDE * matching
            elif segment.last_seq < self._cut:  # it goes as a whole, and need not be read
                work -= _SEGMENT + _SUBJECT * len(segment.counts)
                matching = 0
            if matching:
                segment.ensure()
            at = log.after(segment)

    def _remove(self, allowance: Allowance) -> None:
        if self._filter is None:
            self.done = drop_below(self._log, self._cut, allowance)
        else:
            self.gone = gone = list[int]()
            self.done = self._sweep.run(self, self._cut, allowance, gone)

    def wants(self, segment: Segment, allowance: Allowance) -> bool:
        """Whether messages of the segment match; see ``Chooser``."""
        allowance.left -= len(segment) - segment.counted
        return bool(self._log.view(self._filter).total(segment))

    def choose(
        self, segment: Segment, start: int, stop: int, most: int
    ) -> tuple[Sequence[int], int]:
        """What matches; see ``Chooser``."""
        positions = self._log.view(self._filter).positions(segment, start, stop)
        if len(positions) > most:
            return positions[:most], positions[most - 1] + 1
        return positions, stop

    def _pass_over(self, allowance: Allowance) -> None:
        """Move the cut down until as many matches as are to be kept lie above it."""
        log = self._log
        view = log.view(self._filter)
        while self._keep and allowance.left > 0:
            if not log.messages or self._cut <= log.first_seq:
                self._keep, self.done = 0, True
                self._cut = 0
                return
            segment = log.segment_of(self._cut - 1)
            allowance.left -= _SEGMENT
            if segment.base >= self._cut or not segment.live:
                self._cut = segment.base
                continue
            if self._cut > segment.last_seq:
                if self._filter is not None:
                    allowance.left -= len(segment) - segment.counted + len(segment.counts)
                total = view.total(segment)
                if total <= self._keep:
                    self._keep -= total
                    self._cut = segment.base
                    continue
            segment.ensure()
            stop = segment.lower(self._cut)
            start = max(segment.lower(log.first_seq), stop - _WINDOW)
            positions = view.positions(segment, start, stop)
            allowance.left -= stop - start
            if len(positions) >= self._keep:
                self._cut = segment.sequence(positions[-self._keep])
                self._keep = 0
            else:
                self._keep -= len(positions)
                self._cut = segment.sequence(start) if stop > start else segment.base


class LimitPass:
    """Bringing every subject down to its newest few messages, in one pass from the head.

    A subject is *in hand* until the pass has met as many of its messages as are too many. While it is,
    no message of it lies before the pass, and others leave its surplus alone.
    """

    def __init__(self, log: StreamLog, keep: int) -> None:
        self._log = log
        self.keep = keep
        self._subjects = _subjects_over(log.table, keep)
        self._table: object = None
        self._mask = bytearray()
        self._sweep = Sweep(log)
        self.done = not self._subjects

    def covers(self, subject: bytes) -> bool:
        """Whether this pass takes care of what is too much of a subject."""
        return subject in self._subjects

    def run(self, work: int = EVERYTHING) -> list[int]:
        """Remove some; returns the sequences. Raises StoreError, and can be called again.

        With StoreReadError nothing was removed, and the next call begins where this one stopped.
        """
        log = self._log
        log.check_writable()
        gone: list[int] = []
        try:
            self._advance(Allowance(work), gone)
        except StoreReadError:
            if not gone:
                raise
        if gone:
            log.removals.after_removal()
        return gone

    def _advance(self, allowance: Allowance, gone: list[int]) -> None:
        if self._sweep.run(self, self._log.last_seq + 1, allowance, gone):
            self.done = True
            self._subjects.clear()

    def wants(self, segment: Segment, allowance: Allowance) -> bool:
        """Every segment is looked at; see ``Chooser``."""
        return True

    def choose(
        self, segment: Segment, start: int, stop: int, most: int
    ) -> tuple[Sequence[int], int]:
        """What is too much of the subjects in hand; see ``Chooser``."""
        table = self._log.table
        if self._table is not table:
            self._table, self._mask = table, bytearray(len(table.names))
            self._subjects &= table.ids.keys()  # some may have gone otherwise
            for name in self._subjects:
                self._mask[table.ids[name]] = 1
        mask, keep, counts = self._mask, self.keep, table.counts
        mask += bytes(len(table.names) - len(mask))
        sids = segment.sids[start:stop]
        chosen = map(mask.__getitem__, sids)
        selectors = segment.alive_slice(start, stop)
        if selectors is not None:
            chosen = map(and_, chosen, selectors)
        taken: dict[int, int] = {}
        positions: list[int] = []
        for position in compress(range(start, stop), chosen):
            sid = segment.sids[position]
            so_far = taken.get(sid, 0)
            if counts[sid] - so_far > keep:
                if len(positions) == most:
                    return positions, position
                taken[sid] = so_far + 1
                positions.append(position)
            else:
                mask[sid] = 0
                self._subjects.discard(table.names[sid])
        self.done = not self._subjects
        return positions, stop


def _subjects_over(table: SubjectTable, keep: int) -> set[bytes]:
    """The subjects with more messages than that."""
    over = [sid for sid, count in enumerate(table.counts) if count > keep]
    return set(map(table.names.__getitem__, over))


def trim(log: StreamLog, max_messages: int, max_bytes: int, before_ns: int, work: int) -> int:
    """See ``StreamLog.trim``."""
    log.check_writable()
    removals, allowance = log.removals, Allowance(work)
    had = removals.remains
    keep = max_messages if max_messages > 0 else log.messages
    room = max_bytes if max_bytes > 0 else log.bytes
    try:
        if log.messages > keep or log.bytes > room:
            _trim_size(log, keep, room, allowance)
        if before_ns:
            _trim_age(log, before_ns, allowance)
    except StoreReadError:
        if had == removals.remains:
            raise
    if had > removals.remains:
        removals.renumber_if_worth()
    return had - removals.remains


def _trim_size(log: StreamLog, keep: int, room: int, allowance: Allowance) -> None:
    """Remove from the head while there are more messages than ``keep`` or more bytes than ``room``."""
    while (log.messages > keep or log.bytes > room) and allowance.left > 0:
        head = log.head_segment()
        whole = log.messages - keep >= head.live or log.bytes - room >= head.data_end > 0
        if whole and _drop_whole(log, head, allowance):
            continue
        start = head.lower(log.first_seq)
        positions = _window(log, head, start, len(head), allowance)
        count = min(len(positions), max(0, log.messages - keep))
        if log.bytes > room:
            totals = list(accumulate(map(head.sizes.__getitem__, positions)))
            needed = bisect_left(totals, log.bytes - room) + 1
            count = max(count, min(needed, len(positions)))
        log.removals.drop_head(head, positions[:count])


def _trim_age(log: StreamLog, before_ns: int, allowance: Allowance) -> None:
    """Remove from the head while its messages are older than that."""
    while log.messages and allowance.left > 0:
        head = log.head_segment()
        old = head.sealed and head.newest_ns() < before_ns
        if old and _drop_whole(log, head, allowance):
            continue
        head.ensure()
        stamps = head.stamps
        start = head.lower(log.first_seq)
        if start >= len(head):
            continue  # what was left of it is damaged
        if stamps[start] >= before_ns:
            return
        positions = _window(log, head, start, len(head), allowance)
        count = next(
            (at for at, position in enumerate(positions) if stamps[position] >= before_ns),
            len(positions),
        )
        log.removals.drop_head(head, positions[:count])
        if count < len(positions):
            return


def drop_below(log: StreamLog, cut: int, allowance: Allowance) -> bool:
    """Remove everything before a sequence; whether that is done."""
    while log.messages and log.first_seq < cut:
        if allowance.left <= 0:
            return False
        head = log.head_segment()
        if head.last_seq < cut and _drop_whole(log, head, allowance):
            continue
        head.ensure()
        start = head.lower(log.first_seq)
        log.removals.drop_head(head, _window(log, head, start, head.lower(cut), allowance))
    return True


def dispose(log: StreamLog, work: int) -> bool:
    """Let go of some of a deleted stream's memory; whether that was all.

    Freeing ten million messages in one go would take a second.
    """
    left = work
    log.views.clear()
    log.search.occurrences = None
    if log.remains is None:
        log.remains, log.table = log.table, SubjectTable()
    while left > 0 and len(log.segments) > 1:
        segment = log.segments.pop()
        left -= _SEGMENT + _burden(segment)
    del log.bases[len(log.segments) :]
    names, ids = log.remains.names, log.remains.ids
    if left > 0 and names:
        count = min(len(names), max(1, left // _NAME))
        for name in names[-count:]:
            ids.pop(name, None)
        del names[-count:]
    if len(log.segments) > 1 or names:
        return False
    last = log.segments[0]  # there is always one: it is left without what it held
    log.segments[0] = Segment(last.serial, last.base, last.salt, last.path, sealed=True)
    log.remains = SubjectTable()
    # Its parts know it, and it is freed with the last one who knows it, not by the garbage collector.
    del log.search, log.last_of_each, log.rows_at, log.removals, log.limits
    if "decode" in vars(log):
        del log.decode
    return True


def _burden(segment: Segment) -> int:
    """What it costs to let go of a segment beside counting it out, in units of work."""
    return _BODY * len(segment.bodies) + sum([len(chunk.parts) for chunk in segment.chunks])


def _drop_whole(log: StreamLog, head: Segment, allowance: Allowance) -> bool:
    """Drop what is left of the head segment, if that is not too much for now."""
    price = _SEGMENT + len(head) - head.counted + _SUBJECT * len(head.counts) + _burden(head)
    if price > allowance.left:
        return False
    allowance.left -= price
    log.removals.drop_segment(head)
    return True


def _window(
    log: StreamLog, head: Segment, start: int, stop: int, allowance: Allowance
) -> Sequence[int]:
    """The next live positions of the head, as many as may go now."""
    head.ensure()
    stop = min(stop, start + max(1, min(_WINDOW, allowance.left // _HEAD)))
    allowance.left -= _HEAD * (stop - start)
    return log.view(None).positions(head, start, stop)


class SubjectLimits:
    """Enforces a limit of messages per subject on one log."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._pass: LimitPass | None = None  # the one that was begun last

    def forget(self) -> None:
        """Messages are back: what a pass has met may be there again; who wants one begins anew."""
        self._pass = None
        if self._log.superseded:
            self._log.superseded = []

    def renumber(self, places: Sequence[int]) -> None:
        if self._log.superseded:
            noted = self._log.superseded
            self._log.superseded = [(places[sid], sequence) for sid, sequence in noted]

    def enforce(self, subjects: Iterable[bytes], keep: int) -> list[int]:
        """Remove all but the newest ``keep``, at least 1, of each of these; returns the sequences.

        A StoreReadError ends it where it is, and tells what was removed before.
        """
        self._log.check_writable()
        before, sparser = len(self._log.removals.removed), dict[Segment, None]()
        try:
            for sid in map(self._log.table.ids.get, subjects):
                if sid is not None and not self._is_covered(sid):
                    self._enforce_one(sid, keep, sparser)
        except StoreReadError as error:
            error.removed = self._finish_enforcing(before, sparser)
            raise
        return self._finish_enforcing(before, sparser)

    def enforcing(self, keep: int) -> LimitPass:
        """As ``enforce`` for every subject, some at a time; until that is done, ``enforce`` leaves
        its subjects alone.
        """
        self._pass = LimitPass(self._log, keep)
        return self._pass

    def _is_covered(self, sid: int) -> bool:
        running = self._pass
        return running is not None and running.covers(self._log.table.names[sid])

    def enforce_on_superseded(self) -> list[int]:
        """Remove what is in ``superseded``, so that each subject has one again; returns the sequences.

        A StoreReadError ends it, as ``enforce``; what is left stays in ``superseded``.
        """
        self._log.check_writable()
        noted = self._log.superseded
        if not noted:
            return []
        self._log.superseded = []
        counts, removed, locate = (
            self._log.table.counts,
            self._log.removals.removed,
            self._log.locate,
        )
        before, sparser = len(removed), dict[Segment, None]()
        if len(noted) >= _TOGETHER_MIN and self._removed_together(noted, sparser):
            return self._finish_enforcing(before, sparser)
        at = 0
        try:
            for at, (sid, sequence) in enumerate(noted):  # noqa: B007 - it tells how far that went
                segment, position = locate(sequence)
                if position >= 0 and segment.sids[position] == sid and counts[sid] > 1:
                    segment.mark_dead(position)
                    self._log.removals.drop(segment, position)
                    removed.append(sequence)
                    if segment.sealed:
                        sparser[segment] = None
                elif not self._is_covered(sid):  # it was removed otherwise, or is the newest again
                    self._enforce_one(sid, 1, sparser)
        except StoreReadError as error:
            self._log.superseded = noted[at:]
            error.removed = self._finish_enforcing(before, sparser)
            raise
        return self._finish_enforcing(before, sparser)

    def _removed_together(self, noted: list[tuple[int, int]], sparser: dict[Segment, None]) -> bool:
        """Remove all of these, if each is there, and not the last that is left of its subject."""
        log, counts = self._log, self._log.table.counts
        sids, sequences = zip(*sorted(noted, key=itemgetter(1)), strict=True)
        if len(set(sequences)) < len(sequences):
            return False
        try:
            found = list(log.live_positions(sequences))
        except StoreReadError:
            return False  # what can be read is removed one by one
        there = [segment.sids[position] for segment, positions in found for position in positions]
        if there != list(sids) or any(counts[sid] <= n for sid, n in Counter(sids).items()):
            return False
        for segment, positions in found:
            log.removals.drop_inside(segment, positions)
            if segment.sealed:
                sparser[segment] = None
        return True

    def _enforce_one(self, sid: int, keep: int, sparser: dict[Segment, None]) -> None:
        table = self._log.table
        for _ in range(table.counts[sid] - keep):
            sequence = table.firsts[sid]
            segment, position = self._log.locate(sequence)
            if position < 0 or segment.sids[position] != sid:
                sequence = self._log.search.first_of(sid)
                segment, position = self._log.locate(sequence)
            segment.mark_dead(position)
            self._log.removals.drop(segment, position)
            self._log.removals.removed.append(sequence)
            if segment.sealed:
                sparser[segment] = None

    def _finish_enforcing(self, before: int, sparser: dict[Segment, None]) -> list[int]:
        removed = self._log.removals.removed[before:]
        if removed:
            for segment in sparser:
                self._log.note_sparse(segment)
            self._log.removals.after_removal()
        return removed
