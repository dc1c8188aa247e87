"""Taking messages away: removal, trimming, purging; and taking back what a failed batch had done.

A file store writes what is staged here as REMOVAL records: the interior removals one by one
(``_removed``) and everything the head has passed since the last batch as one range (``_floor``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from operator import le
from typing import TYPE_CHECKING, Final

from ....errors import StoreReadError
from ..commit.writer import Work
from ..index.index import Segment, SubjectTable, sids_in_doubt
from ..index.views import View
from .bulk import EVERYTHING, Allowance, Purging, Thinning, trim_age, trim_size
from .log import MessageLog
from .part import Part

if TYPE_CHECKING:
    from ....subjects import SubjectFilter

__all__ = ["EditableLog"]

_RENUMBER_MIN: Final = 65_536  # so many subjects without a message, and half of all: drop them
_FEW: Final = 8  # so many messages are dropped one by one
_SEGMENT: Final = 200  # units of work to let go of a segment …
_BODY: Final = 2  # … of a message in memory
_NAME: Final = 5  # … and of a subject


class EditableLog(MessageLog):
    """The removing half of a stream store; see ``StreamStore`` in ``core/ports.py``."""

    def __init__(self, name: str, tail: Segment) -> None:
        super().__init__(name, tail)
        self._removed: list[int] = []  # interior removals since the last flush
        self._floor = 1  # the first sequence as of the last flush
        self._died: list[Segment] = []  # sealed segments whose last message went since then
        self._inflight: deque[Part] = deque()
        self._remains: SubjectTable | None = None  # of a deleted stream, to be freed by and by
        self._spoilt = 0  # messages that segments, once loaded, turned out not to hold
        self._renumber_at = 0  # so many empty subjects make another renumbering worth it
        self._pass: Thinning | None = None  # the one that was begun last
        self.superseded: list[tuple[int, int]] | None = None

    @property
    def staged_bytes(self) -> int:
        """What the next flush will take of this stream, in bytes."""
        raise NotImplementedError

    def _check_writable(self) -> None:
        """Raise StoreError if nothing may be changed any more."""
        raise NotImplementedError

    def _note_if_sparse(self, segment: Segment) -> None:
        """A message in the interior of a sealed segment was removed."""

    def remove(self, sequences: Collection[int]) -> int:
        """Remove these messages, all or none; returns how many existed. Durable with the next flush."""
        self._check_writable()
        if len(sequences) > _FEW:
            return self._remove_many(sequences)
        removed, table = self._removed, self._table
        before = len(removed)
        wanted = list(dict.fromkeys(sequences))
        # What has to be read for it is read before anything changes.
        places = list(map(self._locate, wanted))
        for sequence, (segment, position) in zip(wanted, places, strict=True):
            if position >= 0:
                sid = segment.sids[position]
                if table.lasts[sid] <= sequence:
                    table.loose.add(sid)
                segment.mark_dead(position)
                self._drop(segment, position)
                removed.append(sequence)
                if segment.sealed:
                    self._note_if_sparse(segment)
        if len(removed) > before:
            self.after_removal()
        return len(removed) - before

    def _remove_many(self, sequences: Collection[int]) -> int:
        before, table = len(self._removed), self._table
        # Here, too, everything is read before anything changes.
        for segment, positions in list(self._live_positions(sorted(set(sequences)))):
            sids = list(map(segment.sids.__getitem__, positions))
            lasts = map(table.lasts.__getitem__, sids)
            reached = map(le, lasts, segment.sequences(positions))
            table.loose.update(compress(sids, reached))
            self.drop_inside(segment, positions)
            self.note_sparse(segment)
        if len(self._removed) > before:
            self.after_removal()
        return len(self._removed) - before

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
        self._check_writable()
        had = self.remains
        try:
            self._trim(max_messages, max_bytes, before_ns, Allowance(work))
        except StoreReadError:
            if had == self.remains:
                raise
        if had > self.remains:
            self._maybe_renumber()
        return had - self.remains

    def _trim(
        self, max_messages: int, max_bytes: int, before_ns: int, allowance: Allowance
    ) -> None:
        keep = max_messages if max_messages > 0 else self.messages
        room = max_bytes if max_bytes > 0 else self.bytes
        if self.messages > keep or self.bytes > room:
            trim_size(self, keep, room, allowance)
        if before_ns:
            trim_age(self, before_ns, allowance)

    def is_within(self, *, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0) -> bool:
        """Whether ``trim`` with these limits would remove nothing. Raises StoreReadError."""
        return not (
            0 < max_messages < self.messages
            or 0 < max_bytes < self.bytes
            or (before_ns and self.messages and self._stamp(self._first) < before_ns)
        )

    def purge(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> int:
        """Remove matching messages below ``below_seq`` (0: all), keeping the newest ``keep``.

        All or none: raises StoreReadError if what has to be read for it cannot be read now.
        """
        return self.purging(filter, below_seq, keep).run()

    def purging(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> Purging:
        """As ``purge``, some at a time."""
        return Purging(self, filter, below_seq, keep)

    # -- removal inside

    def drop_inside(self, segment: Segment, positions: Sequence[int]) -> None:
        """Remove live messages, ascending, from inside a loaded segment."""
        self._removed += segment.sequences(positions)
        segment.mark_many(positions)
        self._drop_many(segment, positions)

    def drop_head(self, head: Segment, positions: Sequence[int]) -> None:
        """Remove the first live messages, of the head segment, which is loaded."""
        if len(positions) <= _FEW:
            for position in positions:
                self._drop(head, position)
        else:
            self._drop_many(head, positions)
        if positions:
            head.head = positions[-1] + 1
            self._first = head.sequence(positions[-1]) + 1
            self._advance_first()

    def after_removal(self) -> None:
        """Messages were removed: find the first one anew."""
        self._advance_first()
        self._maybe_renumber()

    def _drop_many(self, segment: Segment, positions: Sequence[int]) -> None:
        """``_drop`` for several ascending positions."""
        if isinstance(positions, range):
            sids: Sequence[int] = segment.sids[positions.start : positions.stop]
            sizes: Sequence[int] = segment.sizes[positions.start : positions.stop]
        else:
            sids = list(map(segment.sids.__getitem__, positions))
            sizes = list(map(segment.sizes.__getitem__, positions))
        gone = Counter(sids)
        inside = bisect_left(positions, segment.counted)
        if inside:
            counts = segment.counts
            listed = gone if inside == len(positions) else Counter(sids[:inside])
            for sid, count in listed.items():
                counts[sid] -= count
            segment.weight -= sum(sizes[:inside])
        segment.dead += len(positions)
        segment.version += 1
        subtract = self._table.subtract
        for sid, count in gone.items():
            subtract(sid, count)
        self.messages -= len(positions)
        self.bytes -= sum(sizes)
        self._note_end(segment)

    def _drop(self, segment: Segment, position: int) -> None:
        """Take a live message, already marked if need be, out of every counter."""
        sid = segment.sids[position]
        if position < segment.counted:
            segment.counts[sid] -= 1
            segment.weight -= segment.sizes[position]
        segment.dead += 1
        segment.version += 1
        table = self._table
        left = table.counts[sid] - 1
        table.counts[sid] = left
        if not left:
            table.empty += 1
        self.messages -= 1
        self.bytes -= segment.sizes[position]
        self._note_end(segment)

    def _note_end(self, segment: Segment) -> None:
        is_over = segment.dead == len(segment) and not segment.spoilt
        if is_over and segment is not self._segments[-1]:
            self._died.append(segment)

    # -- for those who remove much

    @property
    def remains(self) -> int:
        """How many messages there are, or would be without damage: only removing makes it less."""
        return self.messages + self._spoilt

    def check_writable(self) -> None:
        """Raise StoreError if nothing may be changed any more; otherwise something is about to be."""
        self._check_writable()

    @property
    def tail(self) -> Segment:
        """The segment that is appended to."""
        return self._segments[-1]

    def head_segment(self) -> Segment:
        """The segment of the first live message."""
        return self._segments[self._segment_index(self._first)]

    def segment_of(self, sequence: int) -> Segment:
        """The segment in which a sequence would be."""
        return self._segments[self._segment_index(sequence)]

    def after(self, segment: Segment) -> int:
        """The first sequence of the next segment; beyond the last if there is none."""
        index = self._segments.index(segment) + 1
        return self._bases[index] if index < len(self._bases) else self.last_seq + 1

    def view_of(self, filter: SubjectFilter | None) -> View:
        return self._view(filter)

    def note_sparse(self, segment: Segment) -> None:
        """Messages inside a segment have gone: is it worth compacting?"""
        if segment.sealed:
            self._note_if_sparse(segment)

    def burden(self, segment: Segment) -> int:
        """What it costs to let go of a segment beside counting it out, in units of work."""
        return _BODY * len(segment.bodies) + sum([len(chunk.parts) for chunk in segment.chunks])

    def subjects_over(self, keep: int) -> set[bytes]:
        """The subjects with more messages than that."""
        table = self._table
        over = [sid for sid, count in enumerate(table.counts) if count > keep]
        return set(map(table.names.__getitem__, over))

    def drop_segment(self, segment: Segment) -> None:
        """Remove all that is left of the head segment at the cost of its subjects, not its messages.

        It need not be read for that, nor for taking it back should the flush fail.
        """
        counts = segment.live_counts()
        if segment.load is not None:
            names = self._table.names
            left = {names[sid]: count for sid, count in counts.items() if count}
            segment.left = left, segment.weight
        self.bytes -= segment.weight
        subtract = self._table.subtract
        for sid, count in counts.items():
            if count:
                subtract(sid, count)
        self.messages -= segment.live
        segment.counts, segment.weight = {}, 0
        segment.counted = segment.dead = segment.head = len(segment)
        segment.version += 1
        if segment is not self._segments[-1]:
            self._died.append(segment)
        self._first = segment.last_seq + 1
        self._advance_first()

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
        if table.empty < max(_RENUMBER_MIN, self._renumber_at) or table.empty * 2 < len(
            table.names
        ):
            return
        removed = [sequence for part in self._inflight for sequence in part.removed] + self._removed
        floor = self._inflight[0].floor if self._inflight else self._floor
        back = sids_in_doubt(self._segments, floor, self._first, removed)
        fresh, places = table.renumbered(back)
        for segment in self._segments:
            segment.renumber(places)  # one that is not loaded yet will find the names anew
        fresh.loose = {places[sid] for sid in table.loose if table.counts[sid]}
        if self.superseded:
            self.superseded = [(places[sid], sequence) for sid, sequence in self.superseded]
        self._table = fresh
        self._renumber_at = 2 * fresh.empty  # those in doubt are not worth another pass
        self._views.clear()
        self.search.occurrences = None
        self._aim()

    def give_up(self, segment: Segment, position: int) -> None:
        """A live message turned out to be damaged: it is as if it were not there."""
        self._table.loose.add(segment.sids[position])
        segment.mark_dead(position)
        self._drop(segment, position)
        self._advance_first()

    def lessened(self, segment: Segment, messages: int, nbytes: int) -> None:
        """A segment, just loaded, turned out to hold so much less than it said."""
        table, before = self._table, segment.counts
        segment.spoilt = True
        if segment.dead:  # it went as a whole, before it was read
            segment.counted = segment.dead = segment.head = len(segment)
            return
        segment.counts, segment.counted, segment.weight = {}, 0, 0
        segment.version += 1
        counts = segment.live_counts()
        for sid, count in before.items():
            gone = count - counts.get(sid, 0)
            if gone:
                table.subtract(sid, gone)
                table.loose.add(sid)
        self._spoilt += messages
        self.messages -= messages
        self.bytes -= nbytes
        self._advance_first()

    # -- staging

    def stage(self, work: Work) -> Part:
        """Everything since the last flush becomes a part of the next batch; its writes go to ``work``."""
        raise NotImplementedError

    def give_back(self) -> None:
        """The disk is full: have freed by the next flush what can be; see ``holes``."""

    def discard(self) -> None:
        """The stream is deleted: hold nothing in common caches any more."""

    def dispose(self, work: int) -> bool:
        """The stream is deleted for good: let go of some of its memory; whether that was all.

        Freeing ten million messages in one go would take a second.
        """
        left = work
        self._views.clear()
        self.search.occurrences = None
        if self._remains is None:
            self._remains, self._table = self._table, SubjectTable()
        while left > 0 and len(self._segments) > 1:
            segment = self._segments.pop()
            left -= _SEGMENT + self.burden(segment)
        del self._bases[len(self._segments) :]
        names, ids = self._remains.names, self._remains.ids
        if left > 0 and names:
            count = min(len(names), max(1, left // _NAME))
            for name in names[-count:]:
                ids.pop(name, None)
            del names[-count:]
        return len(self._segments) == 1 and not names

    def _aim(self) -> None:
        """The tail's arrays or the table were exchanged: point the append path at the new ones."""

    def _retire(self, segment: Segment) -> None:
        """The death of a sealed segment is durable."""
        raise NotImplementedError

    def _take_part(self) -> Part:
        """What changed since the last flush becomes a part of the next batch."""
        part = Part(self.last_seq, self._floor, self._first, self._removed, self._died)
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
            self._retire(segment)

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
        self._pass = None  # what it has passed may be back: who wants it begins anew
        if self.superseded:
            self.superseded = []
        self._take_back_appends()
        self._views.clear()
        self.search.occurrences = None
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
                        self._table.loose.add(segment.sids[position])
                        self._drop(segment, position)
                segment.cut(start)
            if segment.durable or not kept:
                kept.append(segment)
        self._segments = kept
        self._bases = [segment.base for segment in kept]

    def _revive_head(self, segment: Segment, first: int, passed: int) -> None:
        if segment.load is not None:
            self._revive_unread(segment)
            return
        start, stop = segment.lower(first), segment.lower(passed)
        for position in self._view(None).positions(segment, start, stop):
            self._revive(segment, position)

    def _revive_unread(self, segment: Segment) -> None:
        """Of a segment that is not loaded all messages are there, or it went as a whole."""
        if segment.left is None:
            return
        (counts, weight), segment.left = segment.left, None
        table, first = self._table, segment.base + segment.first_rel
        for name, count in counts.items():
            sid = table.intern(name)
            segment.counts[sid] = count
            table.add(sid, first, segment.last_seq, count)
            table.loose.add(sid)
        segment.weight, segment.dead, segment.head = weight, 0, 0
        segment.version += 1
        self.messages += len(segment)
        self.bytes += weight
        self._first = min(self._first, first)

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
            segment.weight += segment.sizes[position]
        self._table.add(sid, sequence, sequence, 1)
        self.messages += 1
        self.bytes += segment.sizes[position]
        self._first = min(self._first, sequence)
