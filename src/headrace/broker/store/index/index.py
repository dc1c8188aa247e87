"""What is kept in memory of the messages: per segment parallel arrays, per stream a table of subjects.

A message costs 20 bytes (offset, size, subject id, timestamp), until its segment is left to its file
(``log/idle``). Its sequence is its position in the segment plus the segment's base, except in compacted
segments, which list relative sequences. A removed message stays in the arrays with its byte in ``alive``
cleared; positions before the stream's first sequence are gone without being marked.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import accumulate, compress
from typing import Any

import msgspec

from ....subjects import carried
from ..format.segment import Ending, Expiries


class Chunk(msgspec.Struct, eq=False):
    """Encoded records of consecutive positions of a segment, still in memory."""

    first: int
    parts: list[bytes] = msgspec.field(default_factory=list)
    nbytes: int = 0


class Segment(msgspec.Struct, eq=False):
    """The index of a run of messages.

    ``n``, ``first_rel``, ``end_rel`` and ``last_ns`` are only meaningful while the arrays are not loaded;
    ``load`` is the function that loads them, or None once they are there. Of a segment that is not
    loaded no message was removed, or all in one go; then ``left`` tells how many of each subject, and
    how many bytes, should they come back.
    """

    serial: int
    base: int
    salt: int = 0
    path: str = ""
    offsets: array[int] = msgspec.field(default_factory=lambda: array("I"))
    sizes: array[int] = msgspec.field(default_factory=lambda: array("I"))
    sids: array[int] = msgspec.field(default_factory=lambda: array("I"))
    stamps: array[int] = msgspec.field(default_factory=lambda: array("q"))
    rel: array[int] | None = None
    alive: bytearray | None = None
    head: int = 0  # positions before this one are gone without being marked
    hollow: int = 0  # up to where its file was given back
    dead: int = 0
    version: int = 0
    counts: Counter[int] = msgspec.field(default_factory=Counter)
    counted: int = 0
    weight: int = 0  # the bytes of what ``counts`` counts
    chunks: list[Chunk] = msgspec.field(default_factory=list)
    removals: list[tuple[int, int]] = msgspec.field(default_factory=list)
    data_end: int = 0
    bare: bool = False  # whether none of its messages has headers, as far as is known
    expiries: Expiries | None = None  # None: none of its messages expires by itself
    jump: bool = False  # its base does not follow from the records before it
    tells: bool = False  # its header says that whatever was removed as a whole is recorded
    generation: int = 0  # how often it was compacted
    final_seq: int = 0  # once sealed: the stream's last sequence by then
    durable: bool = False  # whether its file is known to be on disk
    sealed: bool = False  # whether no message will be added
    bodies: list[tuple[bytes, bytes] | None] = msgspec.field(default_factory=list)  # memory streams
    spoilt: bool = False  # whether a record was found damaged, and is dead for that reason alone
    n: int = 0
    first_rel: int = 0
    end_rel: int = -1
    last_ns: int = 0
    max_ns: int | None = None
    left: tuple[dict[bytes, int], int] | None = None
    ending: Ending | None = None  # its footer, if one is on disk
    used: bool = False  # whether anybody asked for the arrays since this was last cleared
    rested: int = 0  # how often nobody had; see ``log/idle``
    reloads: int = 0  # how often the arrays were brought back after that
    load: Callable[[Segment], None] | None = None

    def __post_init__(self) -> None:
        self.final_seq = self.base - 1

    def __len__(self) -> int:
        return len(self.stamps) if self.load is None else self.n

    @property
    def live(self) -> int:
        return len(self) - self.dead

    @property
    def last_seq(self) -> int:
        """The sequence of the last message ever in it, or ``base - 1``."""
        if self.load is not None:
            return self.base + self.end_rel
        if self.rel is not None:
            return self.base + self.rel[-1] if self.rel else self.base - 1
        return self.base + len(self.stamps) - 1

    def vacate(self) -> None:
        """All it holds is gone, and need not be loaded to know that: it is empty from now on."""
        self.load, self.n, self.dead, self.expiries = None, 0, 0, None

    def ensure(self) -> None:
        """Load the arrays if they are not. Raises StoreReadError, and then nothing has changed."""
        self.used = True
        load = self.load
        if load is not None:
            load(self)

    def leave(self, load: Callable[[Segment], None]) -> None:
        """Forget the arrays until ``load`` brings them back. It is sealed, and nothing was removed."""
        self.live_counts()
        rel, n = self.rel, len(self)
        self.n, self.last_ns = n, self.stamps[-1]
        self.max_ns = self.ending.max_ns if self.ending is not None else self.newest_ns()
        self.first_rel, self.end_rel = (0, n - 1) if rel is None else (rel[0], rel[-1])
        self.offsets, self.sizes, self.sids = array("I"), array("I"), array("I")
        self.stamps, self.rel = array("q"), None
        self.load = load

    def lower(self, sequence: int) -> int:
        """The first position whose sequence is at least ``sequence``."""
        rel = sequence - self.base
        if rel <= 0:
            return 0
        if self.rel is not None:
            return bisect_left(self.rel, rel)
        return min(rel, len(self.stamps))

    def upper(self, sequence: int) -> int:
        """The first position whose sequence is beyond ``sequence``."""
        rel = sequence - self.base
        if rel < 0:
            return 0
        if self.rel is not None:
            return bisect_right(self.rel, rel)
        return min(rel + 1, len(self.stamps))

    def sequence(self, position: int) -> int:
        return self.base + (position if self.rel is None else self.rel[position])

    def sequences(self, positions: Sequence[int]) -> list[int]:
        rel = positions if self.rel is None else map(self.rel.__getitem__, positions)
        return list(map(self.base.__add__, rel))

    def find(self, sequence: int) -> int:
        """The position of a message that has not been removed from the interior, or -1."""
        self.ensure()
        position = sequence - self.base
        if self.rel is not None:
            rel = position
            position = bisect_left(self.rel, rel) if rel >= 0 else -1
            if position < 0 or position >= len(self.rel) or self.rel[position] != rel:
                return -1
        elif not 0 <= position < len(self.stamps):
            return -1
        alive = self.alive
        if alive is not None and position < len(alive) and not alive[position]:
            return -1
        return position

    def alive_slice(self, start: int, stop: int) -> bytearray | None:
        """A selector of the live positions in ``[start, stop)``; None if all of them are."""
        alive = self.alive
        if alive is None or start >= len(alive):
            return None
        part = alive[start:stop]
        missing = stop - start - len(part)
        return part + b"\1" * missing if missing > 0 else part

    def next_alive(self, position: int) -> int:
        """The first live position at or after ``position``; the length if there is none."""
        alive = self.alive
        if alive is None or position >= len(alive):
            return min(position, len(self))
        found = alive.find(1, position)
        return found if found >= 0 else len(alive)

    def first_live(self, start: int) -> int:
        """The first live sequence from ``start`` on; only to be asked while there is one."""
        if self.load is not None:  # all that it holds is live
            if start <= self.base + self.first_rel:
                return self.base + self.first_rel
            self.load(self)
        return self.sequence(self.next_alive(self.lower(start)))

    def holes(self, start: int) -> Iterator[int]:
        """The positions from ``start`` on that have been removed."""
        alive = self.alive
        if alive is not None:
            position = alive.find(0, start)
            while position >= 0:
                yield position
                position = alive.find(0, position + 1)

    def mark_dead(self, position: int) -> None:
        """Clear a live position. Counters of subjects are the caller's."""
        alive = self.alive
        if alive is None:
            alive = self.alive = bytearray(b"\1" * len(self.stamps))
        elif len(alive) <= position:
            alive.extend(b"\1" * (len(self.stamps) - len(alive)))
        alive[position] = 0

    def mark_many(self, positions: Sequence[int]) -> None:
        """``mark_dead`` for several."""
        self.mark_dead(positions[-1])
        alive = self.alive
        assert alive is not None  # it is made by marking
        if isinstance(positions, range):
            alive[positions.start : positions.stop] = bytes(len(positions))
        else:
            for position in positions:
                alive[position] = 0

    def is_live(self, position: int) -> bool:
        """Whether a position has not been removed from the interior."""
        alive = self.alive
        return alive is None or position >= len(alive) or bool(alive[position])

    def extend(self, offset: int, sizes: list[int], sids: Sequence[int], stamps: array[int]) -> int:
        """Add messages whose records lie from an offset on; returns where they end."""
        *offsets, end = accumulate(sizes, initial=offset)
        self.offsets.fromlist(offsets)  # a third of what `extend` takes
        self.sizes.fromlist(sizes)
        self.sids.fromlist(list(sids))
        self.stamps.extend(stamps)
        return end

    def cut(self, length: int) -> None:
        """Forget positions from ``length`` on; none of them counts as live any more."""
        self.dead -= len(self) - length
        if self.expiries is not None:
            self.expiries.cut(self.sequence(length) - self.base if length < len(self) else 1 << 32)
        for entries in (self.offsets, self.sizes, self.sids, self.stamps, self.rel):
            if entries is not None:
                del entries[length:]
        if self.alive is not None:
            del self.alive[length:]
        del self.bodies[length:]
        self.sealed, self.max_ns = False, None
        self.counted = min(self.counted, length)
        self.head = min(self.head, length)
        self.version += 1
        while self.chunks and self.chunks[-1].first >= length:
            self.chunks.pop()
        if self.chunks:
            del self.chunks[-1].parts[length - self.chunks[-1].first :]

    def renumber(self, places: list[int]) -> None:
        """Give every subject id its new number; new arrays, since a thread may be writing the old."""
        self.sids = array("I", map(places.__getitem__, self.sids))
        kept = {places[sid]: count for sid, count in self.counts.items() if count}
        self.counts = Counter(kept)

    def live_counts(self) -> Counter[int]:
        """How many live messages each subject id has in here; kept up with appends and removals."""
        n = len(self)
        if self.counted < n:
            start = max(self.counted, self.head)
            part = self.sids[start:n]
            selectors = self.alive_slice(start, n)
            counts = self.counts
            sizes = self.sizes[start:n]
            counts.update(part if selectors is None else compress(part, selectors))
            self.weight += sum(sizes if selectors is None else compress(sizes, selectors))
            self.counted = n
        return self.counts

    def newest_ns(self) -> int:
        """The latest timestamp in here; 0 when there is no message."""
        if not self.sealed:
            return max(self.stamps, default=0)
        if self.max_ns is None:
            self.max_ns = max(self.stamps, default=0)
        return self.max_ns


class SubjectTable:
    """The subjects a stream has seen, as small integers, and what is live of each.

    ``firsts`` and ``lasts`` bound the truth from outside: removals do not move them, whoever asks
    repairs them. ``loose`` are those whose entry in ``lasts`` may be too high.
    """

    __slots__ = (
        "_by_token",
        "_listed",
        "counts",
        "empty",
        "firsts",
        "ids",
        "lasts",
        "loose",
        "mended",
        "names",
    )

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}
        self.names: list[bytes] = []
        self.counts: array[int] = array("Q")
        self.firsts: array[int] = array("Q")
        self.lasts: array[int] = array("Q")
        self.loose: set[int] = set()
        self.empty = 0
        self.mended = 0
        """How many subjects were found that no control line can carry."""
        self._by_token: dict[bytes, array[int]] = {}
        self._listed = 0  # so many subjects are in there

    def __len__(self) -> int:
        """How many subjects have a live message."""
        return len(self.names) - self.empty

    def intern(self, subject: bytes) -> int:
        """The id of ``subject``, made if it has none.

        Whatever way a subject came here, of files that somebody else has written too, it goes out in
        control lines: bytes that would end one stand as ``_``, one for one.
        """
        sid = self.ids.get(subject)
        if sid is None and (name := carried(subject)) is not subject:
            self.mended += 1
            return self.intern(name)
        if sid is None:
            sid = self.ids[subject] = len(self.names)
            self.names.append(subject)
            self.counts.append(0)
            self.firsts.append(0)
            self.lasts.append(0)
            self.empty += 1
        return sid

    def intern_each(self, subjects: Sequence[bytes]) -> Sequence[int]:
        """The ids of ``subjects``, as ``intern`` gives them; a range if each is a new one."""
        ids, count = self.ids, len(self.names)
        known: list[Any] = list(map(ids.get, subjects))
        new = known.count(None)
        if not new:
            return known
        missing = subjects
        if new < len(known):
            missing = [name for name, sid in zip(subjects, known, strict=True) if sid is None]
        together = b"".join(missing)
        if carried(together) is not together:
            return list(map(self.intern, subjects))
        ids.update(zip(missing, range(count, count + new), strict=True))
        if len(ids) < count + new:
            missing = list(dict.fromkeys(missing))
            new = len(missing)
            ids.update(zip(missing, range(count, count + new), strict=True))
        self.names += missing
        self.empty += new
        for column in (self.counts, self.firsts, self.lasts):
            column.frombytes(bytes(column.itemsize * new))
        if new == len(subjects):
            return range(count, count + new)
        return list(map(ids.__getitem__, subjects))

    def beginning_with(self, token: bytes, start: int) -> Sequence[int]:
        """The ids from ``start`` on of the subjects with this first token."""
        by_token = self._by_token
        for sid, name in enumerate(self.names[self._listed :], self._listed):
            first = name.partition(b".")[0]
            listed = by_token.get(first)
            if listed is None:
                by_token[first] = array("I", (sid,))
            else:
                listed.append(sid)
        self._listed = len(self.names)
        found = by_token.get(token, ())
        return found[bisect_left(found, start) :]

    def add(self, sid: int, first: int, last: int, count: int) -> None:
        """Count ``count`` more live messages of ``sid``, within ``[first, last]``."""
        if self.counts[sid]:
            self.firsts[sid] = min(self.firsts[sid], first)
            self.lasts[sid] = max(self.lasts[sid], last)
        else:
            self.firsts[sid] = first
            self.lasts[sid] = last
            self.empty -= 1
        self.counts[sid] += count

    def add_new(self, sids: range, first: int) -> None:
        """Count one message of each of these, which have none, from a sequence on."""
        start, stop, count = sids.start, sids.stop, len(sids)
        sequences = array("Q", range(first, first + count))
        self.counts[start:stop] = array("Q", (1,)) * count
        self.firsts[start:stop] = self.lasts[start:stop] = sequences
        self.empty -= count

    def renumbered(self, keep: Set[int]) -> tuple[SubjectTable, list[int]]:
        """A table without the empty subjects but ``keep``, and everyone's new number (0: gone)."""
        fresh = SubjectTable()
        places: list[int] = []
        for sid, name in enumerate(self.names):
            count = self.counts[sid]
            if count:
                places.append(fresh.intern(name))
                fresh.add(places[-1], self.firsts[sid], self.lasts[sid], count)
            else:
                places.append(fresh.intern(name) if sid in keep else 0)
        return fresh, places

    def subtract(self, sid: int, count: int) -> None:
        """Count ``count`` fewer live messages of ``sid``."""
        left = self.counts[sid] - count
        self.counts[sid] = left
        if not left:
            self.empty += 1


def sids_in_doubt(
    segments: list[Segment], floor: int, first: int, removed: Iterable[int]
) -> set[int]:
    """The subjects of removed messages that a failing flush would bring back.

    Those are all from ``floor``, the durable first sequence, to ``first``, and ``removed``.
    """
    sids: set[int] = set()
    for segment in segments:
        if segment.load is None and segment.base < first and segment.last_seq >= floor:
            sids.update(segment.sids[segment.lower(floor) : segment.upper(first)])
    bases = [segment.base for segment in segments]
    for sequence in removed:
        segment = segments[max(0, bisect_right(bases, sequence) - 1)]
        position = segment.lower(sequence)
        if position < len(segment.sids):
            sids.add(segment.sids[position])
    return sids


def pushes(tail: Segment, chunk: Chunk) -> tuple[Callable[[Any], None], ...]:
    """What adds a message to the arrays of a segment, and its record to a chunk."""
    arrays = tail.offsets, tail.sizes, tail.sids, tail.stamps
    return *[each.append for each in arrays], chunk.parts.append
