"""Selections of messages by subject, each remembering what it has already worked out.

A view answers three questions about a stretch of a segment: which positions match, how many live ones
match, and how many in the whole segment. Matching a subject is done once per subject, not per message.

``Occurrences``, every live sequence of every subject, are made only for streams whose subjects are asked
about often. A stream that keeps the newest few messages of each of many subjects asks for the next oldest
one of a subject with every message. Searching the log for it would cost as much as there are subjects.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain, compress
from operator import and_
from typing import TYPE_CHECKING, Final, Protocol

from ....subjects import are_below, is_literal
from .index import Segment, SubjectTable

if TYPE_CHECKING:
    from ....subjects import SubjectFilter


_NEAR: Final = 1024  # so few messages are counted one by one rather than by subject
_SLACK = 32
_BLOCK: Final = 16_384  # so many subjects are looked at together


class Selection(Protocol):
    """Which subjects are meant, as segments see it."""

    def positions(self, segment: Segment, start: int, stop: int) -> Sequence[int]:
        """The live matching positions in ``[start, stop)``."""

    def matched(self, segment: Segment, start: int, stop: int) -> int:
        """How many live positions in ``[start, stop)`` match."""

    def sids(self) -> Sequence[int]:
        """The subject ids that match."""

    def live_in(self, segment: Segment) -> int:
        """How many live messages of a whole segment match."""


class View:
    """A selection, with what was found out about it: totals by segment, an empty stretch, a cursor."""

    __slots__ = ("_cursor", "_live_in", "_matched", "_totals", "positions", "quiet", "sids")

    def __init__(self, selection: Selection) -> None:
        self.positions: Final = selection.positions
        self.sids: Final = selection.sids
        self._matched = selection.matched
        self._live_in = selection.live_in
        self._totals: dict[int, tuple[int, int, int]] = {}  # serial: version, length, total
        self._cursor: tuple[int, int, int, int] = (-1, 0, 0, 0)  # serial, version, position, below
        self.quiet: tuple[int, int] = (1, 0)  # sequences known to hold no match

    def total(self, segment: Segment) -> int:
        """How many live messages of the segment match."""
        n = len(segment)
        version, known, total = self._totals.get(segment.serial, (-1, 0, 0))
        if version == segment.version and known == n:
            return total
        if version == segment.version and segment.load is None:
            total += self._matched(segment, known, n)
        else:
            total = self._live_in(segment)
        self._totals[segment.serial] = (segment.version, n, total)
        return total

    def barren(self, segment: Segment) -> bool:
        """Whether a sealed segment holds no match; cheap, because totals there only shrink."""
        known = self._totals.get(segment.serial)
        if known is not None and known[1] == len(segment):
            return known[2] == 0
        return self.total(segment) == 0

    def total_from(self, segment: Segment, head: int, position: int) -> int:
        """How many live matches lie at or after ``position``; those before ``head`` are gone."""
        n = len(segment)
        if position >= n:
            return 0
        if n - position <= _NEAR and self._is_stale(segment):
            segment.ensure()
            return self._matched(segment, max(position, head), n)
        total = self.total(segment)
        if position <= head:
            return total
        segment.ensure()
        serial, version, at, below = self._cursor
        if serial != segment.serial or version != segment.version or at > position:
            at, below = head, 0
        if n - position < position - at:
            below = total - self._matched(segment, position, n)
        else:
            below += self._matched(segment, at, position)
        self._cursor = (segment.serial, segment.version, position, below)
        return total - below

    def _is_stale(self, segment: Segment) -> bool:
        """Whether a removal has made the total unknown, which then costs a look at every subject."""
        known = self._totals.get(segment.serial)
        return known is None or known[0] != segment.version

    def forget(self, serial: int) -> None:
        """The segment is gone, or was compacted: as long as before, it may hold other messages."""
        self._totals.pop(serial, None)

    def skip_quiet(self, start: int) -> int:
        """Where to start reading instead of ``start``."""
        low, high = self.quiet
        return high + 1 if low <= start <= high else start

    def note_quiet(self, asked: int, start: int, last: int) -> None:
        """Note that none matches from ``asked``, which led to ``start``, up to ``last``."""
        low, high = self.quiet
        if low <= asked <= high + 1:
            self.quiet = (low, max(high, last))
        else:
            self.quiet = (start, last)


class All:
    """Every subject."""

    __slots__ = ("_table",)

    def __init__(self, table: SubjectTable) -> None:
        self._table = table

    def positions(self, segment: Segment, start: int, stop: int) -> Sequence[int]:
        selectors = segment.alive_slice(start, stop)
        span = range(start, stop)
        return span if selectors is None else list(compress(span, selectors))

    def matched(self, segment: Segment, start: int, stop: int) -> int:
        selectors = segment.alive_slice(start, stop)
        return stop - start if selectors is None else selectors.count(1)

    def sids(self) -> Sequence[int]:
        return range(len(self._table.names))

    def live_in(self, segment: Segment) -> int:
        return segment.live


class Sole:
    """One subject."""

    __slots__ = ("_sid", "_subject", "_table")

    def __init__(self, table: SubjectTable, subject: bytes) -> None:
        self._table = table
        self._subject = subject
        self._sid = -1

    def _resolve(self) -> int:
        if self._sid < 0:
            self._sid = self._table.ids.get(self._subject, -1)
        return self._sid

    def positions(self, segment: Segment, start: int, stop: int) -> Sequence[int]:
        sid = self._resolve()
        if sid < 0:
            return ()
        part = segment.sids[start:stop]
        if sid not in part:
            return ()
        found = compress(range(start, stop), map(sid.__eq__, part))
        selectors = segment.alive_slice(start, stop)
        if selectors is None:
            return list(found)
        return [position for position in found if selectors[position - start]]

    def matched(self, segment: Segment, start: int, stop: int) -> int:
        sid = self._resolve()
        if sid < 0:
            return 0
        part = segment.sids[start:stop]
        selectors = segment.alive_slice(start, stop)
        if selectors is None:
            return part.count(sid)
        return sum(compress(map(sid.__eq__, part), selectors))

    def sids(self) -> Sequence[int]:
        sid = self._resolve()
        return () if sid < 0 else (sid,)

    def live_in(self, segment: Segment) -> int:
        sid = self._resolve()
        return 0 if sid < 0 else segment.live_counts().get(sid, 0)


class Matching:
    """The subjects a filter accepts: a mask over subject ids, extended as subjects appear.

    Where every pattern begins with a token, only subjects that begin with it are looked at: those of a
    few partitions, say, and not of all. Where it is all below one literal, whole blocks of subjects are
    looked at together: as a rule each of a bucket's begins so.
    """

    __slots__ = (
        "_below",
        "_is_deep",
        "_is_whole",
        "_mask",
        "_matches",
        "_sids",
        "_table",
        "_tokens",
    )

    def __init__(self, table: SubjectTable, filter: SubjectFilter) -> None:
        self._table = table
        self._matches = filter.matches
        tokens = dict.fromkeys(pattern.partition(b".")[0] for pattern in filter.patterns)
        self._tokens = () if b"*" in tokens else tuple(tokens)
        self._is_whole = all(pattern.partition(b".")[2] == b">" for pattern in filter.patterns)
        head, _, end = filter.patterns[0].rpartition(b".")
        is_below = len(filter.patterns) == 1 and end in (b"*", b">") and is_literal(head)
        self._below = head if is_below else b""
        self._is_deep = end == b">"
        self._mask = bytearray()
        self._sids: list[int] = []

    def _extend(self) -> bytearray:
        mask = self._mask
        known, names = len(mask), self._table.names
        while self._below and known < len(names):
            block = names[known : known + _BLOCK]
            if not are_below(self._below, block, deep=self._is_deep):
                break
            self._sids += range(known, known + len(block))
            mask += b"\1" * len(block)
            known = len(mask)
        if known < len(names):
            if self._tokens:
                mask += bytes(len(names) - known)
                fresh = self._beginning_with_tokens(known)
                for sid in fresh:
                    mask[sid] = 1
                self._sids += fresh
            else:
                mask += bytes(map(self._matches, names[known:]))
                self._sids.extend(compress(range(known, len(mask)), mask[known:]))
        return mask

    def _beginning_with_tokens(self, start: int) -> list[int]:
        """The ids from ``start`` on that match, found by their first tokens."""
        table = self._table
        found = sorted(chain(*[table.beginning_with(token, start) for token in self._tokens]))
        if self._is_whole:  # all but a subject that is nothing else than the token
            alone = {table.ids[token] for token in self._tokens if token in table.ids}
            return [sid for sid in found if sid not in alone] if alone else found
        return list(compress(found, map(self._matches, map(table.names.__getitem__, found))))

    def _selectors(self, segment: Segment, start: int, stop: int) -> map[int]:
        chosen = map(self._extend().__getitem__, segment.sids[start:stop])
        selectors = segment.alive_slice(start, stop)
        return chosen if selectors is None else map(and_, chosen, selectors)

    def positions(self, segment: Segment, start: int, stop: int) -> Sequence[int]:
        return list(compress(range(start, stop), self._selectors(segment, start, stop)))

    def matched(self, segment: Segment, start: int, stop: int) -> int:
        return sum(self._selectors(segment, start, stop))

    def sids(self) -> Sequence[int]:
        self._extend()
        return self._sids

    def live_in(self, segment: Segment) -> int:
        mask = self._extend()
        counts = segment.live_counts()
        if len(self._sids) < len(counts):
            get = counts.get
            return sum(get(sid, 0) for sid in self._sids)
        return sum(count for sid, count in counts.items() if mask[sid])


def make_view(table: SubjectTable, filter: SubjectFilter | None) -> View:
    """The cheapest view for a filter."""
    if filter is None or b">" in filter.patterns:
        return View(All(table))
    if filter.literal is not None:
        return View(Sole(table, filter.literal))
    return View(Matching(table, filter))


class Occurrences:
    """Sequences by subject id, ascending. Removed ones are dropped when met at an end."""

    __slots__ = ("_heads", "_lists")

    def __init__(self, subjects: int) -> None:
        self._lists: list[array[int]] = [array("Q") for _ in range(subjects)]
        self._heads: list[int] = [0] * subjects

    def add(self, sid: int, sequence: int) -> None:
        while sid >= len(self._lists):
            self._lists.append(array("Q"))
            self._heads.append(0)
        self._lists[sid].append(sequence)

    def first(self, sid: int, holds: Callable[[int, int], bool]) -> int:
        """The lowest sequence of ``sid`` for which ``holds(sid, sequence)``."""
        sequences, head = self._lists[sid], self._heads[sid]
        while not holds(sid, sequences[head]):
            head += 1
        if head > _SLACK and 2 * head > len(sequences):
            del sequences[:head]
            head = 0
        self._heads[sid] = head
        return sequences[head]

    def last(self, sid: int, holds: Callable[[int, int], bool]) -> int:
        """The highest sequence of ``sid`` for which ``holds(sid, sequence)``."""
        sequences = self._lists[sid]
        while not holds(sid, sequences[-1]):
            sequences.pop()
        return sequences[-1]


def list_occurrences(segments: Sequence[Segment], table: SubjectTable, first: int) -> Occurrences:
    """Those of all messages from ``first`` on. Raises StoreReadError."""
    for segment in segments:
        if segment.live:
            segment.ensure()
    found = Occurrences(len(table.names))
    everything = All(table)
    for segment in segments:
        if segment.live:
            start, stop = segment.lower(first), len(segment)
            for position in everything.positions(segment, start, stop):
                found.add(segment.sids[position], segment.sequence(position))
    return found
