"""Taking messages away: removal, trimming, purging; and taking back what a failed batch had done.

A file store writes what is staged here as REMOVAL records: the interior removals one by one
(``_removed``) and everything the head has passed since the last batch as one range (``_floor``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...errors import StoreError, StoreReadError
from .index import Segment, SubjectTable
from .log import MessageLog
from .part import Part
from .writer import Work

if TYPE_CHECKING:
    from ...subjects import SubjectFilter

__all__ = ["EditableLog"]

_RENUMBER_MIN: Final = 65_536  # so many subjects without a message, and half of all: drop them
_END: Final = 1 << 64


class EditableLog(MessageLog):
    """The removing half of a stream store; see ``StreamStore`` in ``core/ports.py``."""

    def __init__(self, name: str, tail: Segment) -> None:
        super().__init__(name, tail)
        self._removed: list[int] = []  # interior removals since the last flush
        self._floor = 1  # the first sequence as of the last flush
        self._died: list[Segment] = []  # sealed segments whose last message went since then
        self._inflight: deque[Part] = deque()
        self.superseded: list[tuple[int, int]] | None = None

    @property
    def staged_bytes(self) -> int:
        """What the next flush will take of this stream, in bytes."""
        raise NotImplementedError

    def _check_writable(self) -> None:
        """Raise StoreError if nothing may be changed any more."""
        raise NotImplementedError

    def _thinned(self, segment: Segment) -> None:
        """A message in the interior of a sealed segment was removed."""

    def _skip_to(self, last_seq: int) -> None:
        """Sequences up to ``last_seq`` will not be used; the next append starts a segment there."""
        raise NotImplementedError

    def remove(self, sequences: Iterable[int]) -> int:
        """Remove these messages, all or none; returns how many existed. Durable with the next flush."""
        self._check_writable()
        removed = self._removed
        before = len(removed)
        wanted = list(dict.fromkeys(sequences))
        # What has to be read for it is read before anything changes.
        places = list(map(self._locate, wanted))
        for sequence, (segment, position) in zip(wanted, places, strict=True):
            if position >= 0:
                segment.mark_dead(position)
                self._drop(segment, position)
                removed.append(sequence)
                if segment.sealed:
                    self._thinned(segment)
        if len(removed) > before:
            self._advance_first()
            self._maybe_renumber()
        return len(removed) - before

    def thin(self, subjects: Iterable[bytes], keep: int) -> list[int]:
        """Remove all but the newest ``keep``, at least 1, of each of these; returns the sequences.

        A StoreReadError ends it where it is, and tells what was removed before.
        """
        self._check_writable()
        before, thinned = len(self._removed), dict[Segment, None]()
        try:
            for sid in map(self._table.ids.get, subjects):
                if sid is not None:
                    self._thin_one(sid, keep, thinned)
        except StoreReadError as error:
            error.removed = self._end_thinning(before, thinned)
            raise
        return self._end_thinning(before, thinned)

    def thin_superseded(self) -> list[int]:
        """Remove what is in ``superseded``, so that each subject has one again; returns the sequences.

        A StoreReadError ends it, as ``thin``; what is left stays in ``superseded``.
        """
        self._check_writable()
        noted = self.superseded
        if not noted:
            return []
        self.superseded = []
        counts, removed, locate = self._table.counts, self._removed, self._locate
        before, thinned = len(removed), dict[Segment, None]()
        at = 0
        try:
            for at, (sid, sequence) in enumerate(noted):  # noqa: B007 - it tells how far that went
                segment, position = locate(sequence)
                if position >= 0 and segment.sids[position] == sid and counts[sid] > 1:
                    segment.mark_dead(position)
                    self._drop(segment, position)
                    removed.append(sequence)
                    if segment.sealed:
                        thinned[segment] = None
                else:  # it was removed otherwise, or it is the newest again
                    self._thin_one(sid, 1, thinned)
        except StoreReadError as error:
            self.superseded = noted[at:]
            error.removed = self._end_thinning(before, thinned)
            raise
        return self._end_thinning(before, thinned)

    def _thin_one(self, sid: int, keep: int, thinned: dict[Segment, None]) -> None:
        table = self._table
        for _ in range(table.counts[sid] - keep):
            sequence = table.firsts[sid]
            segment, position = self._locate(sequence)
            if position < 0 or segment.sids[position] != sid:
                sequence = self._first_of(sid)
                segment, position = self._locate(sequence)
            segment.mark_dead(position)
            self._drop(segment, position)
            self._removed.append(sequence)
            if segment.sealed:
                thinned[segment] = None

    def _end_thinning(self, before: int, thinned: dict[Segment, None]) -> list[int]:
        removed = self._removed[before:]
        if removed:
            for segment in thinned:
                self._thinned(segment)
            self._advance_first()
            self._maybe_renumber()
        return removed

    def trim(self, *, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0) -> int:
        """Remove from the head until within the limits (-1 or 0: no limit); returns how many.

        ``before_ns`` removes from the head while its messages are older than that. What lies behind a
        message that cannot be read now stays for another time; StoreReadError if that is the first.
        """
        self._check_writable()
        had = self.messages
        try:
            self._trim(max_messages, max_bytes, before_ns)
        except StoreReadError:
            if had == self.messages:
                raise
        if had > self.messages:
            self._maybe_renumber()
        return had - self.messages

    def _trim(self, max_messages: int, max_bytes: int, before_ns: int) -> None:
        keep = max_messages if max_messages > 0 else self.messages
        room = max_bytes if max_bytes > 0 else self.bytes
        while self.messages > keep or self.bytes > room:
            head = self._head()
            if self.messages - keep >= head.live or self.bytes - room >= head.data_end > 0:
                self._drop_segment(head)
            else:
                self._drop_first(head)
        while before_ns and self.messages:
            head = self._head()
            head.ensure()
            if head.sealed and head.newest_ns() < before_ns:
                self._drop_segment(head)
            elif head.stamps[head.find(self._first)] < before_ns:
                self._drop_first(head)
            else:
                break

    def purge(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> int:
        """Remove matching messages below ``below_seq`` (0: all), keeping the newest ``keep``.

        All or none: raises StoreReadError if what has to be read for it cannot be read now.
        """
        self._check_writable()
        had = self.messages
        limit = below_seq if 0 < below_seq <= self.last_seq else self.last_seq + 1
        excess = self.count(filter, self._first) - self.count(filter, limit) - keep
        if excess <= 0:
            return 0
        self._load_oldest(filter, excess)
        if filter is None:
            self.trim(max_messages=had - excess) if had > excess else self._drop_all()
        else:
            self._remove_oldest(filter, excess)
        return had - self.messages

    def reset_first(self, sequence: int) -> None:
        """On an empty stream only: the next message gets this sequence.

        Raises StoreError if there are messages, or if ``sequence`` was already used.
        """
        self._check_writable()
        if self.messages:
            raise StoreError(
                f"stream {self.name!r} holds {self.messages} messages: only an empty stream can be "
                f"given a first sequence"
            )
        if sequence <= self.last_seq:
            raise StoreError(
                f"stream {self.name!r} has used sequences up to {self.last_seq}: the first sequence "
                f"can be set to {self.last_seq + 1} or more, not {sequence}"
            )
        if sequence > self.last_seq + 1:
            self._skip_to(sequence - 1)

    def skip_to(self, sequence: int) -> None:
        """The next message gets this sequence; those in between are never used.

        Raises StoreError if ``sequence`` was already used.
        """
        if not self.messages:
            self.reset_first(sequence)
            return
        self._check_writable()
        if sequence <= self.last_seq:
            raise StoreError(
                f"stream {self.name!r} has used sequences up to {self.last_seq}: the next one can not "
                f"be {sequence}"
            )
        if sequence > self.last_seq + 1:
            first = self._first
            self._skip_to(sequence - 1)
            self._first = first

    # -- removal inside

    def _load_oldest(self, filter: SubjectFilter | None, count: int) -> None:
        """Load what it takes to remove so many of the oldest that match. Raises StoreReadError."""
        view = self._view(filter)
        for segment in self._segments:
            if count <= 0:
                break
            if segment.live and (matching := view.total(segment)):
                segment.ensure()
                count -= matching

    def _remove_oldest(self, filter: SubjectFilter, excess: int) -> None:
        view = self._view(filter)
        start = self._first
        for segment in self._segments:
            if not excess:
                break
            if not segment.live or not view.total(segment):
                continue
            segment.ensure()
            begin = segment.lower(start)
            for position in view.positions(segment, begin, len(segment))[:excess]:
                excess -= 1
                segment.mark_dead(position)
                self._drop(segment, position)
                self._removed.append(segment.sequence(position))
            if segment.sealed:
                self._thinned(segment)
        self._advance_first()
        self._maybe_renumber()

    def _drop(self, segment: Segment, position: int) -> None:
        """Take a live message, already marked if need be, out of every counter."""
        sid = segment.sids[position]
        if position < segment.counted:
            segment.counts[sid] -= 1
        segment.dead += 1
        segment.version += 1
        table = self._table
        left = table.counts[sid] - 1
        table.counts[sid] = left
        if not left:
            table.empty += 1
        self.messages -= 1
        self.bytes -= segment.sizes[position]
        is_over = segment.dead == len(segment) and not segment.spoilt
        if is_over and segment is not self._segments[-1]:
            self._died.append(segment)

    def _head(self) -> Segment:
        """The segment of the first live message."""
        return self._segments[self._segment_index(self._first)]

    def _drop_first(self, head: Segment) -> None:
        position = head.find(self._first)
        self._drop(head, position)
        head.head = position + 1
        self._first += 1
        self._advance_first()

    def _drop_segment(self, segment: Segment) -> None:
        """Remove all that is left of the head segment at the cost of its subjects, not its messages."""
        segment.ensure()
        start, stop = segment.lower(self._first), len(segment)
        positions = self._view(None).positions(segment, start, stop)
        self.bytes -= sum(map(segment.sizes.__getitem__, positions))
        for sid, count in segment.live_counts().items():
            if count:
                self._table.subtract(sid, count)
        self.messages -= segment.live
        segment.counts = {}
        segment.counted = stop
        segment.dead = segment.head = stop
        segment.version += 1
        if segment is not self._segments[-1]:
            self._died.append(segment)
        self._first = segment.last_seq + 1
        self._advance_first()

    def _drop_all(self) -> None:
        while self.messages:
            self._drop_segment(self._head())
        self._maybe_renumber()

    def _advance_first(self) -> None:
        """Move the first sequence to the lowest live message, or beyond the last if there is none."""
        if not self.messages:
            self._first = self.last_seq + 1
            return
        for segment in self._segments[self._segment_index(self._first) :]:
            if segment.live:
                self._first = segment.first_live(self._first)
                return
        raise AssertionError("a stream with messages has a segment with live ones")

    def _maybe_renumber(self) -> None:
        """Forget subjects without messages when they are many, so that the table stays bounded."""
        table = self._table
        if table.empty < _RENUMBER_MIN or table.empty * 2 < len(table.names):
            return
        fresh = SubjectTable()
        places: list[int] = []
        for sid, name in enumerate(table.names):
            count = table.counts[sid]
            if count:
                places.append(fresh.intern(name))
                fresh.add(places[-1], table.firsts[sid], table.lasts[sid], count)
            else:
                places.append(0)  # dead messages point anywhere
        for segment in self._segments:
            segment.renumber(places)  # one that is not loaded yet will find the names anew
        if self.superseded:
            self.superseded = [(places[sid], sequence) for sid, sequence in self.superseded]
        self._table = fresh
        self._views.clear()
        self._occurrences = None
        self._aim()

    def lessened(self, segment: Segment, messages: int, nbytes: int) -> None:
        """A segment, just loaded, turned out to hold so much less than it said."""
        table, before = self._table, segment.counts
        segment.spoilt = True
        segment.counts, segment.counted = {}, 0
        segment.version += 1
        counts = segment.live_counts()
        for sid, count in before.items():
            gone = count - counts.get(sid, 0)
            if gone:
                table.subtract(sid, gone)
        self.messages -= messages
        self.bytes -= nbytes
        self._advance_first()

    # -- staging

    def stage(self, work: Work) -> Part:
        """Everything since the last flush becomes a part of the next batch; its writes go to ``work``."""
        raise NotImplementedError

    def discard(self) -> None:
        """The stream is deleted: hold nothing in common caches any more."""

    def _aim(self) -> None:
        """The tail's arrays or the table were exchanged: point the append path at the new ones."""

    def _bury(self, segment: Segment) -> None:
        """The death of a sealed segment is durable."""
        raise NotImplementedError

    def _take_part(self) -> Part:
        """What changed since the last flush becomes a part of the next batch."""
        part = Part(self, self.last_seq, self._floor, self._first, self._removed, self._died)
        self._removed, self._died = [], []
        self._floor = self._first
        self._inflight.append(part)
        return part

    def complete(self, part: Part) -> None:
        """The oldest part in flight is durable."""
        oldest = self._inflight.popleft()
        assert oldest is part
        self.durable_seq = part.last_seq
        for segment in part.died:
            self._bury(segment)

    def fail(self) -> None:
        """Nothing after the last completed part will become durable: take all of it back."""
        removed = [sequence for part in self._inflight for sequence in part.removed]
        first = self._inflight[0].floor if self._inflight else self._floor
        self._inflight.clear()
        self._take_back(removed + self._removed, first)

    # -- taking back

    def _take_back(self, removed: Iterable[int], first: int) -> None:
        """Undo everything after ``durable_seq``: appends, removals of ``removed``, and the trims
        that moved the first sequence up from ``first``.
        """
        if self.superseded:
            self.superseded = []
        self._take_back_appends()
        self._views.clear()
        self._occurrences = None
        self.last_seq = self.durable_seq
        passed = self._first
        self._first = min(first, passed)
        for segment in self._segments:
            if segment.base < passed and segment.last_seq >= first:
                self._revive_head(segment, first, passed)
        for sequence in removed:
            segment = self._segments[self._segment_index(sequence)]
            if sequence <= self.durable_seq:
                self._revive_marked(segment, sequence)
        self._removed.clear()
        self._floor = first
        self._advance_first()
        self._died = [s for s in self._segments[:-1] if not s.live and not s.spoilt]
        self._aim()

    def _take_back_appends(self) -> None:
        kept: list[Segment] = []
        for segment in self._segments:
            if segment.base > self.durable_seq or segment.last_seq > self.durable_seq:
                segment.ensure()
                start = segment.upper(self.durable_seq)
                for position in range(start, len(segment)):
                    if segment.is_live(position) and segment.sequence(position) >= self._first:
                        self._drop(segment, position)
                segment.cut(start)
            if segment.durable or not kept:
                kept.append(segment)
        self._segments = kept
        self._bases = [segment.base for segment in kept]

    def _revive_head(self, segment: Segment, first: int, passed: int) -> None:
        segment.ensure()
        start, stop = segment.lower(first), segment.lower(passed)
        for position in self._view(None).positions(segment, start, stop):
            self._revive(segment, position)

    def _revive_marked(self, segment: Segment, sequence: int) -> None:
        position = segment.lower(sequence)
        alive = segment.alive
        if alive is not None and position < len(alive) and not alive[position]:
            alive[position] = 1
            self._revive(segment, position)

    def _revive(self, segment: Segment, position: int) -> None:
        sid, sequence = segment.sids[position], segment.sequence(position)
        segment.dead -= 1
        segment.version += 1
        segment.head = min(segment.head, position)
        if position < segment.counted:
            segment.counts[sid] = segment.counts.get(sid, 0) + 1
        self._table.add(sid, sequence, sequence, 1)
        self.messages += 1
        self.bytes += segment.sizes[position]
        self._first = min(self._first, sequence)
