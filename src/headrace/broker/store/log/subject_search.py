"""The first and the last message of one subject, found when they are asked for.

The subject table bounds both from outside. Whoever asks repairs the bound by searching the segments; once
that has cost as much as listing every occurrence of every subject would, they are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ....errors import StoreReadError
from ....message import StoredRow, SubjectState
from ..index.occurrences import Occurrences, list_occurrences

if TYPE_CHECKING:
    from .log import StreamLog

_SEARCHES: Final = 16  # so many subjects are searched for one by one
_SCAN: Final = 8192  # positions looked at in one go


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
