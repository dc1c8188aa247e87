"""The window in which a repeated ``Nats-Msg-Id`` is answered with the first message's sequence.

An id lives as long as the window, whatever becomes of its message, and of the process: a start finds ids in
the headers of the messages that are there, and in the journal of metadata those whose messages have left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, count, repeat
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

from .....errors import StoreFormatError, StoreReadError
from .....limits import DUPLICATE_IDS_MAX
from ...ports.storage import MetaJournal

LEFT_IDS: Final = "ids/"
"""Keys of the journal: this and the name of the stream."""

_NEVER_NS: Final = 1 << 63
_HEAD: Final = Struct("<BQ")
_COUNT: Final = Struct("<I")
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
        self._left: tuple[list[int], list[int], list[bytes]] = ([], [], [])
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
        different = set(message_ids)
        return len(different) == len(message_ids) and self._sequences.keys().isdisjoint(different)

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
        sequences, times, ids = self._left
        noted = [each for each in zip(sequences, times, ids, strict=True) if each[0] <= sequence]
        self._forget_all()
        for each in kept:
            self.add(each.message_id, each.sequence, each.time_ns)
        for seq, time_ns, message_id in noted:
            self._note(seq, time_ns, message_id)
        self._left_below = min(self._left_below, sequence + 1)
        if not kept:
            self.last_id, self.last_sequence = b"", 0

    def expire(self, now_ns: int) -> None:
        """Forget what is older than the window."""
        limit_ns = now_ns - self.window_ns
        while self._oldest_ns <= limit_ns:
            self._forget_oldest(len(self._blocks[self._start][1]) - self._skip)

    # -- messages that leave

    def left(self, sequences: Iterable[int]) -> None:
        """Messages left the stream: note their ids, for ``take_left``."""
        if not self.notes_left or not self._count:
            return
        firsts, blocks, start = self._firsts, self._blocks, self._start
        oldest = firsts[start] + self._skip
        noted, times, names = self._left
        following = stop = first = time_ns = 0
        ids: list[bytes] = []
        for sequence in sequences:
            if sequence < oldest:
                continue
            if not following <= sequence < stop:
                index = bisect_right(firsts, sequence, start) - 1
                first = following = firsts[index]
                time_ns, ids = blocks[index]
                stop = first + len(ids)
                if sequence >= stop:
                    continue  # it has no id
            noted.append(sequence)
            times.append(time_ns)
            names.append(ids[sequence - first])

    def left_below(self, sequence: int) -> None:
        """All before ``sequence`` left the stream: note their ids, but for those noted so already."""
        if not self.notes_left or sequence <= self._left_below:
            return
        below, self._left_below = self._left_below, sequence
        if not self._count:
            return
        noted, times, names = self._left
        index = max(bisect_right(self._firsts, below, self._start) - 1, self._start)
        while index < len(self._firsts) and (first := self._firsts[index]) < sequence:
            time_ns, ids = self._blocks[index]
            least = max(below - first, self._skip if index == self._start else 0, 0)
            most = min(sequence - first, len(ids))
            if least < most:
                noted += range(first + least, first + most)
                times += repeat(time_ns, most - least)
                names += ids[least:most]
            index += 1

    @property
    def has_left(self) -> bool:
        """Whether ids were noted since ``take_left``."""
        return bool(self._left[0])

    def take_left(self) -> tuple[list[int], list[int], list[bytes]]:
        """The sequences, times and ids of what has left since the last call."""
        taken, self._left = self._left, ([], [], [])
        return taken

    def have_left(self, below: int) -> None:
        """What is before ``below`` is noted already."""
        self._left_below = max(self._left_below, below)

    # -- inside

    def _note(self, sequence: int, time_ns: int, message_id: bytes) -> None:
        for column, value in zip(self._left, (sequence, time_ns, message_id), strict=True):
            column.append(value)  # type: ignore[attr-defined]

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
        self._left = ([], [], [])


class LeftIds:
    """Ids whose messages have left a stream within its window, in the journal of metadata.

    ``1`` u8 · when the stream was made u64, and any number of batches:
    n u32 · n × sequence u64 · n × time u64 · n × length u32 · ids. Times are wall-clock time.
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

    def add(
        self, columns: tuple[list[int], list[int], list[bytes]], offset_ns: int, since_ns: int
    ) -> None:
        """Journal what has left; ``offset_ns`` is wall-clock minus steady time, ``since_ns`` when the window
        begins, as wall-clock time. Raises StoreError.
        """
        sequences, steady, ids = columns
        times = [time_ns + offset_ns for time_ns in steady]
        batch = b"".join(
            (
                pack(f"<I{len(ids)}Q{len(ids)}Q", len(ids), *sequences, *times),
                pack(f"<{len(ids)}I", *map(len, ids)),
                *ids,
            )
        )
        if not self._is_there:
            self._put(b"")
        self._meta.append(self._key, batch)
        self._batches.append((max(times), len(batch)))
        self._live_bytes += len(batch)
        self._last_seq = max(self._last_seq, *sequences)
        self._drop_expired(since_ns)

    def forget_after(self, last_seq: int) -> None:
        """Messages after ``last_seq`` were not kept after all. Raises StoreError."""
        if self._is_there and self._last_seq > last_seq:
            self._last_seq = last_seq
            kept = self.load(0, last_seq)
            self._put(b"")
            if kept:
                columns = ([e[0] for e in kept], [e[1] for e in kept], [e[2] for e in kept])
                self.add(columns, 0, 0)

    def _put(self, body: bytes) -> None:
        self._meta.put(self._key, self._head + body)
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


def _decode(data: bytes) -> list[KnownId]:
    found: list[KnownId] = []
    offset = 0
    while offset < len(data):
        (size,) = _COUNT.unpack_from(data, offset)
        numbers = unpack_from(f"<{size}Q{size}Q{size}I", data, offset + _COUNT.size)
        offset += _COUNT.size + size * 20
        for number in range(size):
            length = numbers[2 * size + number]
            name = data[offset : offset + length]
            found.append(KnownId(numbers[number], numbers[size + number], name))
            offset += length
    return found
