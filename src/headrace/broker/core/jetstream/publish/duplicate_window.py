"""The window in which a repeated ``Nats-Msg-Id`` is answered with the first message's sequence.

An id lives as long as the window, whatever becomes of its message, and of the process: a start finds ids in
the headers of the messages that are there, and in the journal of metadata those whose messages have left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, count
from struct import Struct
from typing import Final, NamedTuple

from .....errors import StoreFormatError, StoreReadError
from .....limits import DUPLICATE_IDS_MAX
from ...ports import MetaJournal

LEFT_IDS: Final = "ids/"
"""Keys of the journal: this and the name of the stream."""

_NEVER_NS: Final = 1 << 63
_HEAD: Final = Struct("<BQ")
_RUN: Final = Struct("<QQI")
_ALONE: Final = 1 << 31
_VERSION: Final = 1
_SPARE_BLOCKS: Final = 1024  # forgotten blocks whose places are kept at least
_SPARE_BYTES: Final = (
    64 * 1024
)  # expired entries in the journal that are no reason to write it anew


class KnownId(NamedTuple):
    """An id, the sequence of its message, and when that was stored."""

    sequence: int
    time_ns: int
    message_id: bytes


class Run(NamedTuple):
    """The ids of messages one behind the other, stored at one time."""

    first: int
    time_ns: int
    ids: list[bytes]


_NO_RUN: Final = Run(0, 0, [])


class DuplicateWindow:
    """Message ids seen within the last ``window_ns``; 0 remembers nothing.

    Beyond ``ids_max`` the oldest are forgotten before their time.

    Times must not go back from call to call: they are the steady clock's, so that a time of day that is set
    makes no message a duplicate, nor a duplicate a message. Nor do sequences, but for ``forget_after``.
    """

    __slots__ = (
        "_blocks",
        "_count",
        "_firsts",
        "_ids_max",
        "_left",
        "_left_below",
        "_oldest_ns",
        "_sequences",
        "_skip",
        "_start",
        "last_id",
        "last_sequence",
        "notes_left",
        "unread",
        "window_ns",
    )

    def __init__(self, window_ns: int, ids_max: int = DUPLICATE_IDS_MAX) -> None:
        self.window_ns = window_ns
        self._ids_max = ids_max
        self._sequences: dict[bytes, int] = {}
        # Ids of messages one behind the other, stored at one time. An id may be there twice: copied from, or
        # found again with, a shorter window than this one.
        self._blocks: list[tuple[int, list[bytes]]] = []
        self._firsts: list[int] = []  # the first sequence of each block
        self._start = 0  # the blocks before are forgotten …
        self._skip = 0  # … and so many ids of that one
        self._count = 0
        self._oldest_ns = _NEVER_NS
        self.notes_left = False
        """Whether ids are noted as their messages leave, for ``take_left``."""
        self._left: list[Run] = []
        self._left_below = 0
        self.unread: StoreReadError | None = None
        """Why it is not complete, after a restart with a disk that could not read all of it yet."""
        self.last_id = b""
        """The id of the newest message that had one."""
        self.last_sequence = 0
        """The sequence of that message."""

    def __len__(self) -> int:
        return len(self._sequences)

    def find(self, message_id: bytes, now_ns: int) -> int:
        """The sequence stored under this id within the window, or 0.

        Raises StoreReadError for an id that may have been stored, while the window is not complete.
        """
        if self._oldest_ns <= now_ns - self.window_ns:
            self.expire(now_ns)
        found = self._sequences.get(message_id, 0)
        if not found and self.unread is not None:
            unread = self.unread
            raise StoreReadError(str(unread), unread.path, unread.errno)
        return found

    def are_new(self, message_ids: Collection[bytes], now_ns: int) -> bool:
        """Whether ``find`` would find none of them, each being added before the next is looked for."""
        self.expire(now_ns)
        if self.unread is not None:
            return False
        if not self.window_ns:
            return True
        known = self._sequences.keys()
        if not known.isdisjoint(message_ids):
            return False
        return len(message_ids) == 1 or len(set(message_ids)) == len(message_ids)

    def add(self, message_id: bytes, sequence: int, now_ns: int) -> None:
        self.last_id, self.last_sequence = message_id, sequence
        if self.window_ns:
            self._sequences[message_id] = sequence
            self._add_block(sequence, now_ns, [message_id])

    def add_many(self, message_ids: Sequence[bytes], sequence: int, now_ns: int) -> None:
        """Remember messages stored one behind the other from ``sequence`` on; at least one."""
        self.last_id, self.last_sequence = message_ids[-1], sequence + len(message_ids) - 1
        if self.window_ns:
            self._sequences.update(zip(message_ids, count(sequence), strict=False))
            self._add_block(sequence, now_ns, list(message_ids))

    def fill(self, found: Iterable[KnownId]) -> None:
        """Add ids that a start has found; what was added since is there already."""
        entries = {each.sequence: each for each in chain(found, self._entries())}
        self._forget_all()
        for sequence in sorted(entries):
            self.add(entries[sequence].message_id, sequence, entries[sequence].time_ns)

    def forget_after(self, sequence: int) -> None:
        """Messages after ``sequence`` were not kept after all."""
        if self.last_sequence <= sequence:
            return
        kept = [each for each in self._entries() if each.sequence <= sequence]
        noted = [run for run in self._left if run.first <= sequence]
        self._forget_all()
        for each in kept:
            self.add(each.message_id, each.sequence, each.time_ns)
        for first, time_ns, ids in noted:
            self._left.append(Run(first, time_ns, ids[: sequence + 1 - first]))
        self._left_below = min(self._left_below, sequence + 1)
        if not kept:
            self.last_id, self.last_sequence = b"", 0

    def expire(self, now_ns: int) -> None:
        """Forget what is older than the window."""
        limit_ns = now_ns - self.window_ns
        while self._oldest_ns <= limit_ns:
            self._forget_oldest(len(self._blocks[self._start][1]) - self._skip)

    # -- messages that leave

    def left(self, sequences: Sequence[int]) -> None:
        """Messages left the stream, in whatever order: note their ids, for ``take_left``."""
        if not self.notes_left or not self._count or not sequences:
            return
        sequences = sorted(sequences)
        first, stop = sequences[0], sequences[-1] + 1
        if stop - first == len(sequences) and sequences == [*range(first, stop)]:
            self._note_range(first, stop)
            return
        oldest, noted, run = self._firsts[self._start] + self._skip, self._left, _NO_RUN
        begins = following = end = 0
        ids: list[bytes] = []
        for sequence in sequences:
            if sequence < oldest:
                continue
            if sequence == following and sequence < end:
                run.ids.append(ids[sequence - begins])
                following += 1
                continue
            index = bisect_right(self._firsts, sequence, self._start) - 1
            begins = self._firsts[index]
            time_ns, ids = self._blocks[index]
            end = begins + len(ids)
            if sequence < end:  # or it has no id
                run = Run(sequence, time_ns, [ids[sequence - begins]])
                noted.append(run)
                following = sequence + 1

    def left_below(self, sequence: int) -> None:
        """All before ``sequence`` left the stream: note their ids, but for those noted so already."""
        if self.notes_left and sequence > self._left_below:
            below, self._left_below = self._left_below, sequence
            if self._count:
                self._note_range(below, sequence)

    def _note_range(self, first: int, stop: int) -> None:
        firsts, start = self._firsts, self._start
        index = max(bisect_right(firsts, first, start) - 1, start)
        while index < len(firsts) and (begins := firsts[index]) < stop:
            time_ns, ids = self._blocks[index]
            least = max(first - begins, self._skip if index == start else 0, 0)
            if chosen := ids[least : stop - begins]:
                self._left.append(Run(begins + least, time_ns, chosen))
            index += 1

    @property
    def has_left(self) -> bool:
        """Whether ids were noted since ``take_left``."""
        return bool(self._left)

    def take_left(self) -> list[Run]:
        """What has left since the last call."""
        taken, self._left = self._left, []
        return taken

    def have_left(self, below: int) -> None:
        """What is before ``below`` is noted already."""
        self._left_below = max(self._left_below, below)

    # -- inside

    def _add_block(self, first: int, now_ns: int, ids: list[bytes]) -> None:
        if not self._count:
            self._oldest_ns = now_ns
        self._firsts.append(first)
        self._blocks.append((now_ns, ids))
        self._count += len(ids)
        while self._count > self._ids_max:
            self._forget_oldest(self._count - self._ids_max)

    def _forget_oldest(self, most: int) -> None:
        """Forget so many of the oldest, of the first block."""
        start, skip = self._start, self._skip
        ids = self._blocks[start][1]
        stop = min(skip + most, len(ids))
        known, first = self._sequences, self._firsts[start]
        for offset in range(skip, stop):
            if known.get(ids[offset]) == first + offset:
                del known[ids[offset]]
        self._count -= stop - skip
        self._skip = stop
        if stop == len(ids):
            self._start, self._skip = start + 1, 0
            if self._start > _SPARE_BLOCKS and self._start * 2 > len(self._blocks):
                del self._blocks[: self._start], self._firsts[: self._start]
                self._start = 0
            else:
                self._blocks[start] = (0, [])
        self._oldest_ns = self._blocks[self._start][0] if self._count else _NEVER_NS

    def _entries(self) -> Iterator[KnownId]:
        skip = self._skip
        for index in range(self._start, len(self._blocks)):
            first, (time_ns, ids) = self._firsts[index], self._blocks[index]
            for offset in range(skip, len(ids)):
                yield KnownId(first + offset, time_ns, ids[offset])
            skip = 0

    def _forget_all(self) -> None:
        self._sequences = {}
        self._blocks, self._firsts = [], []
        self._start = self._skip = self._count = 0
        self._oldest_ns = _NEVER_NS
        self._left = []


class LeftIds:
    """Ids whose messages have left a stream within its window, in the journal of metadata.

    ``1`` u8 · when the stream was made u64, and any number of runs: first sequence u64 · wall-clock time
    u64 · bytes u32 · ids with line ends between them. An id that has a line end itself is a run of its own,
    whose bytes have the highest bit set.

    They are written before the removals that they are committed with: a kill in between leaves ids of
    messages that are still there, which harms nothing, and never a removal without its ids.
    """

    def __init__(self, meta: MetaJournal, stream: str, created_ns: int) -> None:
        self._meta = meta
        self._key = LEFT_IDS + stream
        self._head = _HEAD.pack(_VERSION, created_ns)
        self._batches: deque[tuple[int, int]] = deque()  # of each: the newest time, and its bytes
        self._live_bytes = 0
        self._expired = 0  # batches
        self._expired_bytes = 0
        self._is_there = False
        self._last_seq = 0

    def load(self, since_ns: int, last_seq: int) -> list[KnownId]:
        """Those of messages that were stored after ``since_ns``, up to ``last_seq``.

        Raises StoreFormatError when the journal was written by a version we cannot read.
        """
        value, deltas = self._meta.load().get(self._key, (b"", ()))
        self._batches.clear()
        self._live_bytes = self._expired = self._expired_bytes = 0
        self._is_there = value[: _HEAD.size] == self._head
        found: list[KnownId] = []
        if not self._is_there:
            if value and value[0] != _VERSION:
                text = f"ids of version {value[0]}, this reads {_VERSION}"
                raise StoreFormatError(f"{self._key}: {text}")
            return found  # of another stream that had this name
        for data in (value[_HEAD.size :], *deltas):
            entries = _decode(data)
            self._batches.append((max((e.time_ns for e in entries), default=0), len(data)))
            self._live_bytes += len(data)
            self._last_seq = max(self._last_seq, *(e.sequence for e in entries), 0)
            found += [e for e in entries if e.time_ns > since_ns and e.sequence <= last_seq]
        return found

    def add(self, left: Sequence[Run], offset_ns: int, since_ns: int) -> None:
        """Journal what has left; ``offset_ns`` is wall-clock minus the time in ``left``, ``since_ns`` when
        the window begins, as wall-clock time. Raises StoreError.
        """
        batch = b"".join([_encode(run, offset_ns) for run in left])
        if not self._is_there:
            self._put(b"")
        self._meta.append(self._key, batch, ahead=True)
        newest_ns = max([run.time_ns for run in left]) + offset_ns
        self._batches.append((newest_ns, len(batch)))
        self._live_bytes += len(batch)
        self._last_seq = max(self._last_seq, *[run.first + len(run.ids) - 1 for run in left])
        self._drop_expired(since_ns)

    def forget_after(self, last_seq: int) -> None:
        """Messages after ``last_seq`` were not kept after all. Raises StoreError."""
        if self._is_there and self._last_seq > last_seq:
            self._last_seq = last_seq
            kept = self.load(0, last_seq)
            self._put(b"")
            if kept:
                self.add([Run(seq, time_ns, [name]) for seq, time_ns, name in kept], 0, 0)

    def _put(self, body: bytes) -> None:
        self._meta.put(self._key, self._head + body, ahead=True)
        self._is_there = True
        self._batches.clear()
        self._batches.append((0, len(body)))
        self._live_bytes, self._expired, self._expired_bytes = len(body), 0, 0

    def _drop_expired(self, since_ns: int) -> None:
        """Write the journal's entry anew once most of it is over."""
        while self._expired < len(self._batches):
            newest_ns, size = self._batches[self._expired]
            if newest_ns > since_ns:
                break
            self._expired += 1
            self._expired_bytes += size
        if self._expired_bytes <= self._live_bytes - self._expired_bytes + _SPARE_BYTES:
            return
        _, deltas = self._meta.load()[self._key]
        left = deltas[max(self._expired - 1, 0) :]  # the first batch is in the value
        newest_ns = max((newest for newest, _ in self._batches), default=0)
        self._put(b"".join(left))
        self._batches[0] = (newest_ns, self._live_bytes)


def _encode(run: Run, offset_ns: int) -> bytes:
    first, time_ns, ids = run
    names = b"\n".join(ids)
    if names.count(b"\n") != len(ids) - 1:  # an id has one itself
        each = [
            _RUN.pack(first + n, time_ns + offset_ns, _ALONE | len(i)) + i
            for n, i in enumerate(ids)
        ]
        return b"".join(each)
    return _RUN.pack(first, time_ns + offset_ns, len(names)) + names


def _decode(data: bytes) -> list[KnownId]:
    found: list[KnownId] = []
    offset = 0
    while offset < len(data):
        first, time_ns, length = _RUN.unpack_from(data, offset)
        offset += _RUN.size
        is_alone, length = length & _ALONE, length & ~_ALONE
        names = data[offset : offset + length]
        offset += length
        ids = [names] if is_alone else names.split(b"\n")
        found += [KnownId(sequence, time_ns, name) for sequence, name in enumerate(ids, first)]
    return found
