"""The window in which a repeated ``Nats-Msg-Id`` is answered with the first message's sequence."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from itertools import count, repeat

from .....errors import StoreReadError
from .....limits import DUPLICATE_IDS_MAX


class DuplicateWindow:
    """Message ids seen within the last ``window_ns``; 0 remembers nothing.

    Beyond ``ids_max`` the oldest are forgotten before their time.

    Times must not go back from call to call: they are the steady clock's, so that a time of day that is set
    makes no message a duplicate, nor a duplicate a message.
    """

    __slots__ = (
        "_by_time",
        "_ids_max",
        "_sequences",
        "last_id",
        "last_sequence",
        "unread",
        "window_ns",
    )

    def __init__(self, window_ns: int, ids_max: int = DUPLICATE_IDS_MAX) -> None:
        self.window_ns = window_ns
        self._ids_max = ids_max
        self._sequences: dict[bytes, int] = {}
        # An id may be there twice: copied from, or found again with, a shorter window than this one.
        self._by_time: deque[tuple[int, bytes, int]] = deque()
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
        by_time = self._by_time
        if by_time and by_time[0][0] <= now_ns - self.window_ns:
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
            self._by_time.append((now_ns, message_id, sequence))
            if len(self._by_time) > self._ids_max:
                self._forget_oldest()

    def add_many(self, message_ids: Sequence[bytes], sequence: int, now_ns: int) -> None:
        """Remember messages stored one behind the other from ``sequence`` on; at least one."""
        self.last_id, self.last_sequence = message_ids[-1], sequence + len(message_ids) - 1
        if self.window_ns:
            self._sequences.update(zip(message_ids, count(sequence), strict=False))
            self._by_time.extend(zip(repeat(now_ns), message_ids, count(sequence), strict=False))
            while len(self._by_time) > self._ids_max:
                self._forget_oldest()

    def forget_after(self, sequence: int) -> None:
        """Messages after ``sequence`` were not kept after all."""
        self._by_time = deque(entry for entry in self._by_time if entry[2] <= sequence)
        self._sequences = {message_id: seq for _, message_id, seq in self._by_time}
        if self.last_sequence > sequence:
            newest = self._by_time[-1] if self._by_time else (0, b"", 0)
            _, self.last_id, self.last_sequence = newest

    def expire(self, now_ns: int) -> None:
        """Forget what is older than the window."""
        by_time = self._by_time
        limit_ns = now_ns - self.window_ns
        while by_time and by_time[0][0] <= limit_ns:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, message_id, sequence = self._by_time.popleft()
        if self._sequences.get(message_id) == sequence:
            del self._sequences[message_id]
