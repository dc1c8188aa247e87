"""A stream's messages as both stores see them: what is there, and how it is found and removed.

``StreamLog`` answers every question about the messages. Its parts have state of their own: ``Removals``
what was removed and is not durable yet, ``SubjectLimits`` the limit of messages per subject,
``SubjectSearch`` the first and last of a subject. The file and the memory store add where the bytes are.

The subject table bounds the first and the last message of a subject from outside. Whoever asks repairs the
bound by searching the segments; once that has cost as much as listing every occurrence of every subject
would, they are listed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress, pairwise
from operator import and_
from typing import TYPE_CHECKING, Final

from ....errors import StoreReadError
from ....message import StoredMessage, StoredRow, StreamState, SubjectState
from ..index.index import Segment, SubjectTable
from ..index.spans import Losses
from ..index.views import Occurrences, View, list_occurrences, make_view
from .bulk import EVERYTHING, LimitPass, Purging, SubjectLimits, dispose, trim
from .removals import Removals

if TYPE_CHECKING:
    from ....subjects import SubjectFilter


_SEARCHES: Final = 16  # so many subjects are searched for one by one
_VIEWS_MAX: Final = 4096  # one more filter: the least recently made view is forgotten
_SCAN: Final = 8192  # positions looked at in one go when filtering, at most …
_SCAN_FIRST: Final = 64  # … but the first time not many more than are asked for


class SubjectSearch:
    """Searches one log. ``occurrences`` are listed once that pays; who appends adds to them."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self.occurrences: Occurrences | None = None
        self._scanned = 0  # positions looked at since the stream was opened

    def state_of(self, sid: int) -> SubjectState | None:
        count = self._log.table.counts[sid]
        if not count:
            return None
        last = self.last_of(sid)
        return SubjectState(last if count == 1 else self.first_of(sid), last, count)

    def _holds(self, sid: int, sequence: int) -> bool:
        segment, position = self._log.locate(sequence)
        return position >= 0 and segment.sids[position] == sid

    def first_of(self, sid: int) -> int:
        """The lowest live sequence of a subject that has one; repairs the stored bound."""
        bound = self._log.table.firsts[sid]
        if not self._holds(sid, bound):
            if self.occurrences is not None:
                bound = self.occurrences.first(sid, self._holds)
            else:
                bound = self._search_forward(sid, max(bound, self._log.first))
            self._log.table.firsts[sid] = bound
        return bound

    def last_of(self, sid: int) -> int:
        """The highest live sequence of a subject that has one; repairs the stored bound."""
        bound = self._log.table.lasts[sid]
        if not self._holds(sid, bound):
            if self.occurrences is not None:
                bound = self.occurrences.last(sid, self._holds)
            else:
                bound = self._search_backward(sid, min(bound, self._log.last_seq))
            self._log.table.lasts[sid] = bound
        return bound

    def last_of_each(self, subjects: Iterable[bytes]) -> list[int]:
        """The highest live sequence of each of these, 0 for none. Raises StoreReadError."""
        table = self._log.table
        find, counts, lasts, loose = table.ids.get, table.counts, table.lasts, table.loose
        found = []
        for subject in subjects:
            sid = find(subject)
            if sid is None or not counts[sid]:
                found.append(0)
            else:
                found.append(self.last_of(sid) if sid in loose else lasts[sid])
        return found

    def rows_at(self, sequences: Iterable[int], max_bytes: int) -> dict[int, StoredRow]:
        """The messages with these sequences: without those that are gone, or are beyond so many bytes.

        At least one, if there is one. Raises StoreReadError.
        """
        log, found = self._log, list[StoredRow]()
        for segment, positions in log.live_positions(sorted(set(sequences))):
            max_bytes = log.decode(segment, positions, found, max_bytes)
            if max_bytes < 0:
                break
        return {row[0]: row for row in found}

    def _search_forward(self, sid: int, start: int) -> int:
        for segment in self._log.segments[self._log.segment_index(start) :]:
            if not segment.live_counts().get(sid):
                continue
            segment.ensure()
            begin = position = segment.lower(start)
            sids, n = segment.sids, len(segment)
            while position < n:
                try:
                    position = sids.index(sid, position)
                except ValueError:
                    break
                if segment.find(segment.sequence(position)) >= 0:
                    self._note_scan(position - begin)
                    return segment.sequence(position)
                position += 1
            self._note_scan(n - begin)
        raise AssertionError("a subject with live messages has a first one")

    def _search_backward(self, sid: int, start: int) -> int:
        for segment in reversed(self._log.segments[: self._log.segment_index(start) + 1]):
            if not segment.live_counts().get(sid):
                continue
            segment.ensure()
            begin = segment.upper(start)
            sids = segment.sids
            for position in range(begin - 1, -1, -1):
                if sids[position] == sid and segment.find(segment.sequence(position)) >= 0:
                    self._note_scan(begin - position)
                    return segment.sequence(position)
        raise AssertionError("a subject with live messages has a last one")

    def _note_scan(self, positions: int) -> None:
        """Once searching has cost as much as listing every occurrence would, list them."""
        self._scanned += positions
        if self._scanned > 2 * self._log.messages + _SCAN and self.occurrences is None:
            self._scanned = 0
            try:
                self.occurrences = list_occurrences(
                    self._log.segments, self._log.table, self._log.first
                )
            except StoreReadError:
                return  # searching goes on as before, and has to cost as much again for the next try

    def tighten(self, sids: Sequence[int]) -> None:
        """Make the entries of these subjects in ``lasts`` exact."""
        table = self._log.table
        if len(sids) <= _SEARCHES:
            for sid in sids:
                self.last_of(sid)
        else:  # one pass from the end, as far as need be
            missing = set(sids)
            everything = self._log.view(None)
            for segment in reversed(self._log.segments):
                if missing.isdisjoint(segment.live_counts() if segment.live else ()):
                    continue
                segment.ensure()
                first, stop = segment.lower(self._log.first), len(segment)
                while missing and stop > first:
                    start = max(first, stop - _SCAN)
                    for position in reversed(everything.positions(segment, start, stop)):
                        sid = segment.sids[position]
                        if sid in missing:
                            missing.remove(sid)
                            table.lasts[sid] = segment.sequence(position)
                    stop = start
                if not missing:
                    break
        table.loose.difference_update(sids)


Decode = Callable[["Segment", Sequence[int], "list[StoredRow]", int], int]
"""``decode(segment, positions, out, room)`` appends messages to ``out`` while they fit into ``room`` bytes.

The positions are live. Returns the room left, negative once a message did not fit. The first message of
``out`` always fits.
"""


class StreamLog:
    """A stream's messages, wherever they are kept; see ``StreamStore`` in ``core/ports/storage.py``.

    Whatever needs the disk raises StoreReadError when that cannot read now, and then nothing has
    changed: neither what is there, nor what is known of it.

    ``last_seq``, ``messages``, ``bytes`` and ``durable_seq`` are plain attributes for speed; nobody
    else writes them.
    """

    decode: Decode

    def __init__(self, name: str, tail: Segment, mark_dirty: Callable[[StreamLog], None]) -> None:
        self.name = name
        self.last_seq = 0
        self.durable_seq = 0
        self.messages = 0
        self.bytes = 0
        self.first = 1
        self.table = SubjectTable()
        self.segments: list[Segment] = [tail]
        self.bases: list[int] = [tail.base]
        self.views: dict[SubjectFilter | None, View] = {}
        self.superseded: list[tuple[int, int]] | None = None
        self.search = SubjectSearch(self)
        self.last_of_each, self.rows_at = self.search.last_of_each, self.search.rows_at
        self.removals = Removals(self)
        self.limits = SubjectLimits(self)
        self._mark_dirty = mark_dirty
        self.clean = True  # whether nothing is staged
        self.remains: SubjectTable | None = None  # of a deleted stream, to be freed by and by
        self.lost = Losses()

    # -- what is there

    def sealed_segments(self) -> list[Segment]:
        """Those whose file is on disk, and to which nothing will be added."""
        return [each for each in self.segments if each.sealed and each.durable and each.path]

    @property
    def first_seq(self) -> int:
        """The lowest live sequence; one beyond the last when empty, 0 when fresh."""
        return self.first if self.last_seq else 0

    @property
    def state(self) -> StreamState:
        """A summary; ``num_deleted`` counts the gaps between the first and the last sequence.

        ``first_ns`` is 0 while the disk cannot read it; the other numbers need no reading.
        """
        if not self.messages:
            return StreamState(0, self.bytes, self.first_seq, 0, self.last_seq, 0, 0, 0)
        try:
            first_ns = self._stamp(self.first)
        except StoreReadError:
            first_ns = 0
        return StreamState(
            messages=self.messages,
            bytes=self.bytes,
            first_seq=self.first,
            first_ns=first_ns,
            last_seq=self.last_seq,
            last_ns=self._last_ns(),
            num_subjects=len(self.table),
            num_deleted=self.last_seq - self.first + 1 - self.messages,
        )

    def get(self, sequence: int) -> StoredMessage | None:
        """The message with this sequence, or None if it is gone or never was."""
        segment, position = self.locate(sequence)
        if position < 0:
            return None
        out: list[StoredRow] = []
        self.decode(segment, (position,), out, 0)
        return StoredMessage(*out[0]) if out else None

    def holds(self, sequence: int) -> bool:
        """Whether there is a message with this sequence, readable or not."""
        return self.locate(sequence)[1] >= 0

    def deleted(self) -> list[int]:
        """Sequences between the first and the last that are gone, ascending."""
        gone: list[int] = []
        expected = self.first
        for segment in self.segments if self.messages else ():
            if not segment.live:
                continue
            segment.ensure()
            start = segment.lower(expected)
            gone.extend(range(expected, segment.sequence(start)))
            if segment.rel is None:
                gone.extend(segment.base + position for position in segment.holes(start))
            else:
                kept = segment.rel[start:]
                for before, after in pairwise(kept):
                    gone.extend(range(segment.base + before + 1, segment.base + after))
                gone.extend(segment.sequence(position) for position in segment.holes(start))
            expected = segment.last_seq + 1
        gone.extend(range(expected, self.last_seq + 1))
        gone.sort()
        return gone

    def sequence_at(self, timestamp_ns: int) -> int:
        """The first live sequence stored at or after this time; ``last_seq + 1`` if none.

        "First" is by sequence, so the answer is right even if the clock was once set back.
        """
        for segment in self.segments:
            if segment.live and segment.newest_ns() >= timestamp_ns:
                segment.ensure()
                stamps = segment.stamps
                start, stop = segment.lower(self.first), len(segment)
                fits: Iterator[int] = map(timestamp_ns.__le__, stamps[start:stop])
                selectors = segment.alive_slice(start, stop)
                if selectors is not None:
                    fits = map(and_, fits, selectors)
                for position in compress(range(start, stop), fits):
                    return segment.sequence(position)
        return self.last_seq + 1

    def next_with_headers(self, start_seq: int) -> int:
        """The first sequence, from ``start_seq`` on, of a message that may have headers.

        ``last_seq + 1`` if none has. Whole segments without headers are skipped unread.
        """
        start = max(start_seq, self.first)
        for segment in self.segments[self.segment_index(start) :]:
            if not segment.bare and segment.last_seq >= start:
                return max(start, segment.base)
        return self.last_seq + 1

    # -- subjects

    def subject(self, subject: bytes) -> SubjectState | None:
        """First, last and count of one subject, or None if there is no live message of it."""
        sid = self.table.ids.get(subject)
        return None if sid is None else self.search.state_of(sid)

    def subjects(self, filter: SubjectFilter | None) -> Iterator[tuple[bytes, SubjectState]]:
        """Every subject with a live message that matches, with its state; in no particular order."""
        names = self.table.names
        for sid in self.view(filter).sids():
            state = self.search.state_of(sid)
            if state is not None:
                yield names[sid], state

    def subjects_between(self, start_seq: int, last_seq: int) -> list[bytes]:
        """The subjects in ``[start_seq, last_seq]``, each once; of removed messages, too."""
        sids: set[int] = set()
        for segment in self.segments[self.segment_index(start_seq) :]:
            if segment.base > last_seq:
                break
            segment.ensure()
            sids.update(segment.sids[segment.lower(start_seq) : segment.upper(last_seq)])
        names = self.table.names
        return [names[sid] for sid in sids]

    def last_matching(self, filter: SubjectFilter) -> int:
        """The highest live sequence whose subject matches, or 0."""
        table = self.table
        counts, lasts, loose = table.counts, table.lasts, table.loose
        sids = [sid for sid in self.view(filter).sids() if counts[sid]]
        if not loose:
            return max(map(lasts.__getitem__, sids), default=0)
        best = max((lasts[sid] for sid in sids if sid not in loose), default=0)
        # Bounds are never too low: once the best exact one beats the next bound, the rest cannot win.
        rest = sorted(((lasts[sid], sid) for sid in sids if sid in loose), reverse=True)
        for bound, sid in rest:
            if bound <= best:
                break
            best = max(best, self.search.last_of(sid))
        return best

    def lasts(self, filter: SubjectFilter | None) -> list[int]:
        """The highest live sequence of each subject that matches and has one, ascending."""
        table = self.table
        counts = table.counts
        sids = [sid for sid in self.view(filter).sids() if counts[sid]]
        if table.loose:
            self.search.tighten([sid for sid in sids if sid in table.loose])
        return sorted(map(table.lasts.__getitem__, sids))

    def present(self, sequences: Sequence[int]) -> list[int]:
        """Those of these sequences, ascending, that are there."""
        found: list[int] = []
        for segment, positions in self.live_positions(sequences):
            found += segment.sequences(positions)
        return found

    def headings(self, start_seq: int, most: int) -> list[tuple[int, bytes]]:
        """Sequence and subject of the next messages, at least one if there is one; reads no records."""
        found: list[tuple[int, bytes]] = []
        names, everything = self.table.names, self.view(None)
        start = max(start_seq, self.first)
        for segment in self.segments[self.segment_index(start) :]:
            if not segment.live or segment.last_seq < start:
                continue
            segment.ensure()
            at, stop, sids = segment.lower(start), len(segment), segment.sids
            while at < stop and len(found) < most:
                end = min(stop, at + most)
                positions = everything.positions(segment, at, end)
                found += [(segment.sequence(at), names[sids[at]]) for at in positions]
                at = end
            if len(found) >= most:
                break
        return found

    def subject_counts(self, filter: SubjectFilter | None) -> list[tuple[bytes, int]]:
        """Every subject with a live message that matches, and how many; in no particular order."""
        names, counts = self.table.names, self.table.counts
        sids = [sid for sid in self.view(filter).sids() if counts[sid]]
        live = map(counts.__getitem__, sids)
        return list(zip(map(names.__getitem__, sids), live, strict=True))

    def expiries(self) -> Iterator[tuple[int, int]]:
        """``(sequence, expires_ns)`` of every message there is that expires by itself."""
        for segment in self.segments:
            if segment.expiries:
                segment.ensure()
                for rel, time_ns in segment.expiries:
                    sequence = segment.base + rel
                    if sequence >= self.first and segment.find(sequence) >= 0:
                        yield sequence, time_ns

    def expires_ns(self, sequence: int) -> int:
        """When a message expires by itself; 0 if it does not, or is gone."""
        segment, position = self.locate(sequence)
        if position < 0 or segment.expiries is None:
            return 0
        return segment.expiries.find(sequence - segment.base)

    # -- reading and counting

    def read(
        self,
        start_seq: int,
        filter: SubjectFilter | None,
        max_messages: int,
        max_bytes: int,
        last_seq: int,
    ) -> list[StoredMessage]:
        """``rows`` as messages."""
        rows = self.rows(start_seq, filter, max_messages, max_bytes, last_seq)
        return [StoredMessage(*row) for row in rows]

    def rows(
        self,
        start_seq: int,
        filter: SubjectFilter | None,
        max_messages: int,
        max_bytes: int,
        last_seq: int,
    ) -> list[StoredRow]:
        """Live messages matching ``filter`` in ``[start_seq, last_seq]``, in order.

        At most ``max_messages``, and at most ``max_bytes`` of subject, headers and payload together,
        but at least one message if there is one. Damaged messages are skipped and reported. Raises
        StoreReadError when the first one cannot be read now; one behind others ends the batch.
        """
        out: list[StoredRow] = []
        view = self.view(filter)
        start = max(view.skip_quiet(start_seq), self.first)
        last = min(last_seq, self.last_seq)
        if start > last or max_messages <= 0 or not self.messages:
            return out
        room = max_bytes
        tail = self.segments[-1]
        for segment in self.segments[self.segment_index(start) :]:
            if segment.base > last:
                break
            if segment is not tail and view.barren(segment):
                continue
            try:
                segment.ensure()
                position, stop = segment.lower(start), segment.upper(last)
                width = max_messages if filter is None else max(_SCAN_FIRST, 2 * max_messages)
                while position < stop:
                    end = min(stop, position + width)
                    positions = view.positions(segment, position, end)
                    if positions:
                        wanted = positions[: max_messages - len(out)]
                        room = self.decode(segment, wanted, out, room)
                        if room < 0 or len(out) >= max_messages:
                            return out
                        if len(wanted) < len(positions):
                            end = wanted[-1] + 1  # some were damaged: there is room behind them
                    position, width = end, min(_SCAN, 8 * width)
            except StoreReadError:
                if not out:
                    raise
                return out
        if not out:
            view.note_quiet(start_seq, start, last)
        return out

    def count(self, filter: SubjectFilter | None, start_seq: int) -> int:
        """Exactly how many live messages at or after ``start_seq`` match.

        Costs one addition per segment and the part of one segment that was not counted before.
        """
        if start_seq <= self.first and filter is None:
            return self.messages
        start = max(start_seq, self.first)
        if start > self.last_seq or not self.messages:
            return 0
        view = self.view(filter)
        if start == self.first and len(view.sids()) <= self.last_seq - start:
            return sum(map(self.table.counts.__getitem__, view.sids()))
        index = self.segment_index(start)
        segment = self.segments[index]
        segment.ensure()
        head = segment.lower(self.first)
        total = view.total_from(segment, head, segment.lower(start))
        return total + sum(map(view.total, self.segments[index + 1 :]))

    # -- removing

    def check_writable(self) -> None:
        """Raise StoreError if nothing may be changed any more; otherwise something is about to be."""
        self._mark_dirty(self)
        self.clean = False

    def note_sparse(self, segment: Segment) -> None:
        """Messages inside a segment have gone. In memory, that frees nothing."""

    def retarget(self) -> None:
        """The tail's arrays or the table were exchanged: forget what was kept of the old ones."""

    def remove(self, sequences: Collection[int]) -> int:
        """Remove these messages, all or none; returns how many existed. Durable with the next flush."""
        return self.removals.remove(sequences)

    def trim(
        self,
        *,
        max_messages: int = -1,
        max_bytes: int = -1,
        before_ns: int = 0,
        work: int = EVERYTHING,
    ) -> int:
        """Remove from the head until within the limits (-1 or 0: no limit); returns how many.

        ``before_ns`` removes from the head while its messages are older than that. With ``work`` it stops
        when it has done about so much (see ``bulk``); ``is_within`` tells whether something is left. What
        lies behind a message that cannot be read now stays, too; StoreReadError if that is the first.
        """
        return trim(self, max_messages, max_bytes, before_ns, work)

    def is_within(self, *, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0) -> bool:
        """Whether ``trim`` with these limits would remove nothing. Raises StoreReadError."""
        return not (
            0 < max_messages < self.messages
            or 0 < max_bytes < self.bytes
            or (before_ns and self.messages and self._stamp(self.first) < before_ns)
        )

    def purge(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> int:
        """Remove matching messages below ``below_seq`` (0: all), keeping the newest ``keep``.

        All or none: raises StoreReadError if what has to be read for it cannot be read now.
        """
        return self.purging(filter, below_seq, keep).run()

    def purging(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> Purging:
        """As ``purge``, some at a time."""
        return Purging(self, filter, below_seq, keep)

    def thin(self, subjects: Iterable[bytes], keep: int) -> list[int]:
        """Remove all but the newest ``keep`` of each of these; see ``SubjectLimits.enforce``."""
        return self.limits.enforce(subjects, keep)

    def thinning(self, keep: int) -> LimitPass:
        """As ``thin`` for every subject, some at a time; see ``SubjectLimits.enforcing``."""
        return self.limits.enforcing(keep)

    def thin_superseded(self) -> list[int]:
        """Remove what is in ``superseded``; see ``SubjectLimits.enforce_on_superseded``."""
        return self.limits.enforce_on_superseded()

    def dispose(self, work: int) -> bool:
        """The stream is deleted for good: let go of some of its memory; whether that was all."""
        return dispose(self, work)

    # -- inside

    def head_segment(self) -> Segment:
        """The segment of the first live message."""
        return self.segments[self.segment_index(self.first)]

    def segment_of(self, sequence: int) -> Segment:
        """The segment in which a sequence would be."""
        return self.segments[self.segment_index(sequence)]

    def after(self, segment: Segment) -> int:
        """The first sequence of the next segment; beyond the last if there is none."""
        index = self.segments.index(segment) + 1
        return self.bases[index] if index < len(self.bases) else self.last_seq + 1

    def view(self, filter: SubjectFilter | None) -> View:
        view = self.views.get(filter)
        if view is None:
            if len(self.views) >= _VIEWS_MAX:
                del self.views[next(iter(self.views))]
            view = self.views[filter] = make_view(self.table, filter)
        return view

    def forget_totals(self, segment: Segment) -> None:
        """The segment is gone, or has other positions: what views know of it is no longer so."""
        for view in self.views.values():
            view.forget(segment.serial)

    def segment_index(self, sequence: int) -> int:
        return max(bisect_right(self.bases, sequence) - 1, 0)

    def live_positions(self, ordered: Sequence[int]) -> Iterator[tuple[Segment, list[int]]]:
        """Per segment the positions of those of these ascending sequences that are there."""
        at, end = bisect_left(ordered, self.first), bisect_right(ordered, self.last_seq)
        while at < end:
            index = self.segment_index(ordered[at])
            segment = self.segments[index]
            behind = self.bases[index + 1] if index + 1 < len(self.bases) else self.last_seq + 1
            stop = bisect_left(ordered, behind, at, end)
            segment.ensure()
            if segment.rel is None:
                fits = bisect_right(ordered, segment.last_seq, at, stop)
                base, selectors = segment.base, segment.alive_slice(0, len(segment))
                positions = [sequence - base for sequence in ordered[at:fits]]
                if selectors is not None:
                    positions = list(compress(positions, map(selectors.__getitem__, positions)))
            else:
                found = map(segment.find, ordered[at:stop])
                positions = [position for position in found if position >= 0]
            if positions:
                yield segment, positions
            at = stop

    def locate(self, sequence: int) -> tuple[Segment, int]:
        """The segment and position of a live message; position -1 if there is none."""
        segment = self.segments[-1]
        if sequence < self.first or sequence > self.last_seq:
            return segment, -1
        if sequence < segment.base:
            segment = self.segments[self.segment_index(sequence)]
        return segment, segment.find(sequence)

    def _stamp(self, sequence: int) -> int:
        segment, position = self.locate(sequence)
        return segment.stamps[position] if position >= 0 else 0

    def _last_ns(self) -> int:
        """When the last message was stored, removed meanwhile or not."""
        for segment in reversed(self.segments):
            if len(segment):
                return segment.stamps[-1] if segment.load is None else segment.last_ns
        return 0
