"""A stream's messages as both stores see them: what is there, and how it is found.

``MessageLog`` answers every question; ``edits.EditableLog`` adds removal and taking back; the file and
the memory store add where the bytes are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, pairwise
from operator import and_
from typing import TYPE_CHECKING, Final

from ....errors import StoreReadError
from ....message import StoredMessage, StoredRow, StreamState, SubjectState
from ..index.index import Segment, SubjectTable
from ..index.views import View, make_view
from .subject_search import SubjectSearch

if TYPE_CHECKING:
    from ....subjects import SubjectFilter

__all__ = ["Decode", "MessageLog"]

_VIEWS_MAX: Final = 4096  # one more filter: the least recently made view is forgotten
_SCAN: Final = 8192  # positions looked at in one go when filtering


Decode = Callable[["Segment", Sequence[int], "list[StoredRow]", int], int]
"""``decode(segment, positions, out, room)`` appends messages to ``out`` while they fit into ``room`` bytes.

The positions are live. Returns the room left, negative once a message did not fit. The first message of
``out`` always fits.
"""


class MessageLog:
    """The reading half of a stream store; see ``StreamStore`` in ``core/ports.py``.

    Whatever needs the disk raises StoreReadError when that cannot read now, and then nothing has
    changed: neither what is there, nor what is known of it.

    ``last_seq``, ``messages``, ``bytes`` and ``durable_seq`` are plain attributes for speed; nobody
    else writes them.
    """

    _decode: Decode

    def __init__(self, name: str, tail: Segment) -> None:
        self.name = name
        self.last_seq = 0
        self.durable_seq = 0
        self.messages = 0
        self.bytes = 0
        self._first = 1
        self._table = SubjectTable()
        self._segments: list[Segment] = [tail]
        self._bases: list[int] = [tail.base]
        self._views: dict[SubjectFilter | None, View] = {}
        self.search = SubjectSearch(self)

    # -- what is there

    @property
    def table(self) -> SubjectTable:
        """The subjects, as they are numbered now."""
        return self._table

    def sealed_segments(self) -> list[Segment]:
        """Those whose file is on disk, and to which nothing will be added."""
        return [each for each in self._segments if each.sealed and each.durable and each.path]

    @property
    def first_seq(self) -> int:
        """The lowest live sequence; one beyond the last when empty, 0 when fresh."""
        return self._first if self.last_seq else 0

    @property
    def state(self) -> StreamState:
        """A summary; ``num_deleted`` counts the gaps between the first and the last sequence.

        ``first_ns`` is 0 while the disk cannot read it; the other numbers need no reading.
        """
        if not self.messages:
            return StreamState(0, self.bytes, self.first_seq, 0, self.last_seq, 0, 0, 0)
        try:
            first_ns = self._stamp(self._first)
        except StoreReadError:
            first_ns = 0
        return StreamState(
            messages=self.messages,
            bytes=self.bytes,
            first_seq=self._first,
            first_ns=first_ns,
            last_seq=self.last_seq,
            last_ns=self._last_ns(),
            num_subjects=len(self._table),
            num_deleted=self.last_seq - self._first + 1 - self.messages,
        )

    def get(self, sequence: int) -> StoredMessage | None:
        """The message with this sequence, or None if it is gone or never was."""
        segment, position = self._locate(sequence)
        if position < 0:
            return None
        out: list[StoredRow] = []
        self._decode(segment, (position,), out, 0)
        return StoredMessage(*out[0]) if out else None

    def holds(self, sequence: int) -> bool:
        """Whether there is a message with this sequence, readable or not."""
        return self._locate(sequence)[1] >= 0

    def deleted(self) -> list[int]:
        """Sequences between the first and the last that are gone, ascending."""
        gone: list[int] = []
        expected = self._first
        for segment in self._segments if self.messages else ():
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
        for segment in self._segments:
            if segment.live and segment.newest_ns() >= timestamp_ns:
                segment.ensure()
                stamps = segment.stamps
                start, stop = segment.lower(self._first), len(segment)
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
        start = max(start_seq, self._first)
        for segment in self._segments[self._segment_index(start) :]:
            if not segment.bare and segment.last_seq >= start:
                return max(start, segment.base)
        return self.last_seq + 1

    # -- subjects

    def subject(self, subject: bytes) -> SubjectState | None:
        """First, last and count of one subject, or None if there is no live message of it."""
        sid = self._table.ids.get(subject)
        if sid is None:
            return None
        return self.search.state_of(sid)

    def subjects(self, filter: SubjectFilter | None) -> Iterator[tuple[bytes, SubjectState]]:
        """Every subject with a live message that matches, with its state; in no particular order."""
        names = self._table.names
        for sid in self._view(filter).sids():
            state = self.search.state_of(sid)
            if state is not None:
                yield names[sid], state

    def subjects_between(self, start_seq: int, last_seq: int) -> list[bytes]:
        """The subjects in ``[start_seq, last_seq]``, each once; of removed messages, too."""
        sids: set[int] = set()
        for segment in self._segments[self._segment_index(start_seq) :]:
            if segment.base > last_seq:
                break
            segment.ensure()
            sids.update(segment.sids[segment.lower(start_seq) : segment.upper(last_seq)])
        names = self._table.names
        return [names[sid] for sid in sids]

    def last_matching(self, filter: SubjectFilter) -> int:
        """The highest live sequence whose subject matches, or 0."""
        table = self._table
        counts, lasts, loose = table.counts, table.lasts, table.loose
        sids = [sid for sid in self._view(filter).sids() if counts[sid]]
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
        table = self._table
        counts = table.counts
        sids = [sid for sid in self._view(filter).sids() if counts[sid]]
        if table.loose:
            self.search.tighten([sid for sid in sids if sid in table.loose])
        return sorted(map(table.lasts.__getitem__, sids))

    def present(self, sequences: Sequence[int]) -> list[int]:
        """Those of these sequences, ascending, that are there."""
        found: list[int] = []
        for segment, positions in self._live_positions(sequences):
            found += segment.sequences(positions)
        return found

    def headings(self, start_seq: int, most: int) -> list[tuple[int, bytes]]:
        """Sequence and subject of the next messages, at least one if there is one; reads no records."""
        found: list[tuple[int, bytes]] = []
        names, everything = self._table.names, self._view(None)
        start = max(start_seq, self._first)
        for segment in self._segments[self._segment_index(start) :]:
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
        names, counts = self._table.names, self._table.counts
        sids = [sid for sid in self._view(filter).sids() if counts[sid]]
        live = map(counts.__getitem__, sids)
        return list(zip(map(names.__getitem__, sids), live, strict=True))

    def expiries(self) -> Iterator[tuple[int, int]]:
        """``(sequence, expires_ns)`` of every message there is that expires by itself."""
        for segment in self._segments:
            if segment.expiries:
                segment.ensure()
                for rel, time_ns in segment.expiries:
                    sequence = segment.base + rel
                    if sequence >= self._first and segment.find(sequence) >= 0:
                        yield sequence, time_ns

    def expires_ns(self, sequence: int) -> int:
        """When a message expires by itself; 0 if it does not, or is gone."""
        segment, position = self._locate(sequence)
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
        view = self._view(filter)
        start = max(view.skip_quiet(start_seq), self._first)
        last = min(last_seq, self.last_seq)
        if start > last or max_messages <= 0 or not self.messages:
            return out
        room = max_bytes
        tail = self._segments[-1]
        for segment in self._segments[self._segment_index(start) :]:
            if segment.base > last:
                break
            if segment is not tail and view.barren(segment):
                continue
            try:
                segment.ensure()
                position, stop = segment.lower(start), segment.upper(last)
                width = max_messages if filter is None else max(1024, 2 * max_messages)
                while position < stop:
                    end = min(stop, position + width)
                    positions = view.positions(segment, position, end)
                    if positions:
                        wanted = positions[: max_messages - len(out)]
                        room = self._decode(segment, wanted, out, room)
                        if room < 0 or len(out) >= max_messages:
                            return out
                        if len(wanted) < len(positions):
                            end = wanted[-1] + 1  # some were damaged: there is room behind them
                    position, width = end, _SCAN
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
        if start_seq <= self._first and filter is None:
            return self.messages
        start = max(start_seq, self._first)
        if start > self.last_seq or not self.messages:
            return 0
        view = self._view(filter)
        if start == self._first:
            return sum(map(self._table.counts.__getitem__, view.sids()))
        index = self._segment_index(start)
        segment = self._segments[index]
        segment.ensure()
        head = segment.lower(self._first)
        total = view.total_from(segment, head, segment.lower(start))
        return total + sum(map(view.total, self._segments[index + 1 :]))

    # -- inside

    def _view(self, filter: SubjectFilter | None) -> View:
        view = self._views.get(filter)
        if view is None:
            if len(self._views) >= _VIEWS_MAX:
                del self._views[next(iter(self._views))]
            view = self._views[filter] = make_view(self._table, filter)
        return view

    def _forget_totals(self, segment: Segment) -> None:
        """The segment is gone, or has other positions: what views know of it is no longer so."""
        for view in self._views.values():
            view.forget(segment.serial)

    def _segment_index(self, sequence: int) -> int:
        return max(bisect_right(self._bases, sequence) - 1, 0)

    def _live_positions(self, ordered: Sequence[int]) -> Iterator[tuple[Segment, list[int]]]:
        """Per segment the positions of those of these ascending sequences that are there."""
        at, end = bisect_left(ordered, self._first), bisect_right(ordered, self.last_seq)
        while at < end:
            index = self._segment_index(ordered[at])
            segment = self._segments[index]
            behind = self._bases[index + 1] if index + 1 < len(self._bases) else self.last_seq + 1
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

    def _locate(self, sequence: int) -> tuple[Segment, int]:
        """The segment and position of a live message; position -1 if there is none."""
        segment = self._segments[-1]
        if sequence < self._first or sequence > self.last_seq:
            return segment, -1
        if sequence < segment.base:
            segment = self._segments[self._segment_index(sequence)]
        return segment, segment.find(sequence)

    def _stamp(self, sequence: int) -> int:
        segment, position = self._locate(sequence)
        return segment.stamps[position] if position >= 0 else 0

    def _last_ns(self) -> int:
        """When the last message was stored, removed meanwhile or not."""
        for segment in reversed(self._segments):
            if len(segment):
                return segment.stamps[-1] if segment.load is None else segment.last_ns
        return 0
