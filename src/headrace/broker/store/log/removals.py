"""Taking messages away, one or many; and taking back what a failed batch had done.

A file store writes what is staged here as REMOVAL records: the interior removals one by one
(``removed``) and everything the head has passed since the last batch as one range (``floor``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from operator import le
from typing import TYPE_CHECKING, Final

import msgspec

from ..index.index import Segment, sids_in_doubt

if TYPE_CHECKING:
    from .log import StreamLog

_RENUMBER_MIN: Final = 65_536  # so many subjects without a message, and half of all: drop them
_FEW: Final = 8  # so many messages are dropped one by one


class Part(msgspec.Struct, eq=False):
    """One stream's share of a flush: what to do when it is durable, and what to undo if it fails."""

    last_seq: int
    floor: int
    first: int
    removed: Sequence[int]
    died: Sequence[Segment]
    holes: Sequence[tuple[Segment, int]] = ()  # to be given back, up to where
    opened: Sequence[Segment] = ()  # file streams: segments this part creates
    sealed: Sequence[Segment] = ()  # … and finishes
    tail: Segment | None = None  # … and the tail, with the removals recorded in it
    end: int = 0  # … up to where
    made: bool = False  # … and the stream's directory, which it makes
    ranges: Sequence[tuple[int, int]] = ()
    relog: Sequence[tuple[int, int]] = ()  # … recorded before, elsewhere


class Removals:
    """Removes messages of one log, and keeps what of that is not durable yet."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self.removed: list[int] = []  # interior removals since the last flush
        self.floor = 1  # the first sequence as of the last flush
        self.died: list[Segment] = []  # sealed segments whose last message went since then
        self.inflight: deque[Part] = deque()
        self._spoilt = 0  # messages that segments, once loaded, turned out not to hold
        self._renumber_at = 0  # so many empty subjects make another renumbering worth it

    def remove(self, sequences: Collection[int]) -> int:
        """Remove these messages, all or none; returns how many existed. Durable with the next flush."""
        log = self._log
        log.check_writable()
        if len(sequences) > _FEW:
            return self._remove_many(sequences)
        removed, table = self.removed, log.table
        before = len(removed)
        wanted = list(dict.fromkeys(sequences))
        # What has to be read for it is read before anything changes.
        places = list(map(log.locate, wanted))
        for sequence, (segment, position) in zip(wanted, places, strict=True):
            if position >= 0:
                sid = segment.sids[position]
                if table.lasts[sid] <= sequence:
                    table.loose.add(sid)
                segment.mark_dead(position)
                self.drop(segment, position)
                removed.append(sequence)
                if segment.sealed:
                    log.note_sparse(segment)
        if len(removed) > before:
            self.after_removal()
        return len(removed) - before

    def _remove_many(self, sequences: Collection[int]) -> int:
        before, table = len(self.removed), self._log.table
        # Here, too, everything is read before anything changes.
        for segment, positions in list(self._log.live_positions(sorted(set(sequences)))):
            sids = list(map(segment.sids.__getitem__, positions))
            lasts = map(table.lasts.__getitem__, sids)
            reached = map(le, lasts, segment.sequences(positions))
            table.loose.update(compress(sids, reached))
            self.drop_inside(segment, positions)
            self._log.note_sparse(segment)
        if len(self.removed) > before:
            self.after_removal()
        return len(self.removed) - before

    # -- removal inside

    def drop_inside(self, segment: Segment, positions: Sequence[int]) -> None:
        """Remove live messages, ascending, from inside a loaded segment."""
        self.removed += segment.sequences(positions)
        segment.mark_many(positions)
        self._drop_many(segment, positions)

    def drop_head(self, head: Segment, positions: Sequence[int]) -> None:
        """Remove the first live messages, of the head segment, which is loaded."""
        if len(positions) <= _FEW:
            for position in positions:
                self.drop(head, position)
        else:
            self._drop_many(head, positions)
        if positions:
            head.head = positions[-1] + 1
            self._log.first = head.sequence(positions[-1]) + 1
            self.advance_first()

    def after_removal(self) -> None:
        """Messages were removed: find the first one anew."""
        self.advance_first()
        self.renumber_if_worth()

    def _drop_many(self, segment: Segment, positions: Sequence[int]) -> None:
        log = self._log
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
        totals = log.table.counts
        for sid, count in gone.items():
            left = totals[sid] - count
            totals[sid] = left
            if not left:
                log.table.empty += 1
        log.messages -= len(positions)
        log.bytes -= sum(sizes)
        self._note_end(segment)

    def drop(self, segment: Segment, position: int) -> None:
        """Take a live message, already marked if need be, out of every counter."""
        log = self._log
        sid = segment.sids[position]
        if position < segment.counted:
            segment.counts[sid] -= 1
            segment.weight -= segment.sizes[position]
        segment.dead += 1
        segment.version += 1
        table = log.table
        left = table.counts[sid] - 1
        table.counts[sid] = left
        if not left:
            table.empty += 1
        log.messages -= 1
        log.bytes -= segment.sizes[position]
        self._note_end(segment)

    def _note_end(self, segment: Segment) -> None:
        is_over = segment.dead == len(segment) and not segment.spoilt
        if is_over and segment is not self._log.segments[-1]:
            self.died.append(segment)

    # -- for those who remove much

    @property
    def durable_first(self) -> int:
        """The first sequence as far as that is durable: a failing flush would bring it back."""
        return self.inflight[0].floor if self.inflight else self.floor

    def undurable(self) -> list[int]:
        """What was removed from inside, and is not gone for good yet."""
        return [sequence for part in self.inflight for sequence in part.removed] + self.removed

    @property
    def remains(self) -> int:
        """How many messages there are, or would be without damage: only removing makes it less."""
        return self._log.messages + self._spoilt

    def drop_segment(self, segment: Segment) -> None:
        """Remove all that is left of the head segment at the cost of its subjects, not its messages.

        It need not be read for that, nor for taking it back should the flush fail.
        """
        log = self._log
        counts = segment.live_counts()
        if segment.load is not None:
            names = log.table.names
            left = {names[sid]: count for sid, count in counts.items() if count}
            segment.left = left, segment.weight
        log.bytes -= segment.weight
        subtract = log.table.subtract
        for sid, count in counts.items():
            if count:
                subtract(sid, count)
        log.messages -= segment.live
        segment.counts, segment.weight = Counter(), 0
        segment.counted = segment.dead = segment.head = len(segment)
        segment.version += 1
        if segment is not log.segments[-1]:
            self.died.append(segment)
        log.first = segment.last_seq + 1
        self.advance_first()

    def advance_first(self) -> None:
        """Move the first sequence to the lowest live message, or beyond the last if there is none."""
        log = self._log
        if not log.messages:
            log.first = log.last_seq + 1
            return
        for segment in log.segments[log.segment_index(log.first) :]:
            if segment.live:
                log.first = segment.first_live(log.first)
                return
        raise AssertionError("a stream with messages has a segment with live ones")

    def renumber_if_worth(self) -> None:
        """Forget subjects without messages when they are many, so that the table stays bounded."""
        log = self._log
        table = log.table
        if table.empty < max(_RENUMBER_MIN, self._renumber_at) or table.empty * 2 < len(
            table.names
        ):
            return
        back = sids_in_doubt(log.segments, self.durable_first, log.first, self.undurable())
        fresh, places = table.renumbered(back)
        for segment in log.segments:
            segment.renumber(places)  # one that is not loaded yet will find the names anew
        fresh.loose = {places[sid] for sid in table.loose if table.counts[sid]}
        log.limits.renumber(places)
        log.table = fresh
        self._renumber_at = 2 * fresh.empty  # those in doubt are not worth another pass
        log.views.clear()
        log.search.occurrences = None
        log.retarget()

    def give_up(self, segment: Segment, position: int) -> None:
        """A live message turned out to be damaged: it is as if it were not there."""
        self._log.table.loose.add(segment.sids[position])
        segment.mark_dead(position)
        self.drop(segment, position)
        self.advance_first()

    def lessened(self, segment: Segment, messages: int, nbytes: int) -> None:
        """A segment, just loaded, turned out to hold so much less than it said."""
        log = self._log
        table, before = log.table, segment.counts
        segment.spoilt = True
        if segment.dead:  # it went as a whole, before it was read
            segment.counted = segment.dead = segment.head = len(segment)
            return
        segment.counts, segment.counted, segment.weight = Counter(), 0, 0
        segment.version += 1
        counts = segment.live_counts()
        for sid, count in before.items():
            gone = count - counts.get(sid, 0)
            if gone:
                table.subtract(sid, gone)
                table.loose.add(sid)
        self._spoilt += messages
        log.messages -= messages
        log.bytes -= nbytes
        self.advance_first()

    # -- staging

    def begin_part(self) -> Part:
        """What changed since the last flush becomes a part of the next batch."""
        log = self._log
        # Most streams of a commit were only added to: no list for what there is none of.
        part = Part(log.last_seq, self.floor, log.first, self.removed or (), self.died or ())
        if self.removed:
            self.removed = []
        if self.died:
            self.died = []
        self.floor = log.first
        self.inflight.append(part)
        return part

    def complete(self, part: Part) -> Sequence[Segment]:
        """The oldest part in flight is durable; returns the segments that died with it."""
        oldest = self.inflight.popleft()
        assert oldest is part
        self._log.durable_seq = part.last_seq
        return part.died

    def fail(self) -> None:
        """Take back all after the last completed part: it will not become durable."""
        removed, first = self.undurable(), self.durable_first
        self.inflight.clear()
        self._take_back(removed, first)

    # -- taking back

    def _take_back(self, removed: Iterable[int], first: int) -> None:
        """Undo everything after ``durable_seq``: appends, removals of ``removed``, and the trims
        that moved the first sequence up from ``first``.
        """
        log = self._log
        log.limits.forget()
        self._take_back_appends()
        log.views.clear()
        log.search.occurrences = None
        log.last_seq = log.durable_seq
        passed = log.first
        log.first = min(first, passed)
        for segment in log.segments:
            if segment.base < passed and segment.last_seq >= first:
                self._revive_head(segment, first, passed)
        for sequence in removed:
            segment = log.segments[log.segment_index(sequence)]
            if sequence <= log.durable_seq:
                self._revive_marked(segment, sequence)
        self.removed.clear()
        self.floor = first
        self.advance_first()
        self.died = [s for s in log.segments[:-1] if not s.live and not s.spoilt]
        log.retarget()

    def _take_back_appends(self) -> None:
        log = self._log
        kept: list[Segment] = []
        for segment in log.segments:
            if segment.base > log.durable_seq or segment.last_seq > log.durable_seq:
                segment.ensure()
                start = segment.upper(log.durable_seq)
                for position in range(start, len(segment)):
                    if segment.is_live(position) and segment.sequence(position) >= log.first:
                        log.table.loose.add(segment.sids[position])
                        self.drop(segment, position)
                segment.cut(start)
            if segment.durable or not kept:
                kept.append(segment)
        log.segments = kept
        log.bases = [segment.base for segment in kept]

    def _revive_head(self, segment: Segment, first: int, passed: int) -> None:
        if segment.load is not None:
            self._revive_unread(segment)
            return
        start, stop = segment.lower(first), segment.lower(passed)
        for position in self._log.view(None).positions(segment, start, stop):
            self._revive(segment, position)

    def _revive_unread(self, segment: Segment) -> None:
        """Of a segment that is not loaded all messages are there, or it went as a whole."""
        log = self._log
        if segment.left is None:
            return
        (counts, weight), segment.left = segment.left, None
        table, first = log.table, segment.base + segment.first_rel
        for name, count in counts.items():
            sid = table.intern(name)
            segment.counts[sid] = count
            table.add(sid, first, segment.last_seq, count)
            table.loose.add(sid)
        segment.weight, segment.dead, segment.head = weight, 0, 0
        segment.version += 1
        log.messages += len(segment)
        log.bytes += weight
        log.first = min(log.first, first)

    def _revive_marked(self, segment: Segment, sequence: int) -> None:
        position = segment.lower(sequence)
        alive = segment.alive
        if alive is not None and position < len(alive) and not alive[position]:
            alive[position] = 1
            self._revive(segment, position)

    def _revive(self, segment: Segment, position: int) -> None:
        log = self._log
        sid, sequence = segment.sids[position], segment.sequence(position)
        segment.dead -= 1
        segment.version += 1
        segment.head = min(segment.head, position)
        if position < segment.counted:
            segment.counts[sid] = segment.counts.get(sid, 0) + 1
            segment.weight += segment.sizes[position]
        log.table.add(sid, sequence, sequence, 1)
        log.messages += 1
        log.bytes += segment.sizes[position]
        log.first = min(log.first, sequence)
