"""Where a consumer starts: the deliver policies, and the messages that one of them begins with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from .....api.consumers import ConsumerConfig
from .....api.times import parse_time
from .....errors import StoreReadError
from .....message import StoredRow
from .....subjects import SubjectFilter
from ...ports.storage import StreamStore
from ..ports import StreamView

_EVERYTHING: Final = SubjectFilter([b">"])


def start_sequence(config: ConsumerConfig, store: StreamStore, filter: SubjectFilter | None) -> int:
    """The first stream sequence a new consumer looks at."""
    first, after_last = max(store.first_seq, 1), store.last_seq + 1
    if config.deliver_policy == "all":
        return first
    if config.deliver_policy == "last":
        newest = filter or (None if store.holds(store.last_seq) else _EVERYTHING)
        last = store.last_matching(newest) if newest is not None else 0
        return max(last or store.last_seq, first if store.messages else 1)
    if config.deliver_policy == "by_start_sequence":
        return max(config.opt_start_seq, first)
    if config.deliver_policy == "by_start_time":
        return max(store.sequence_at(parse_time(config.opt_start_time or "")), 1)
    return after_last


def safe_sequence(
    config: ConsumerConfig, store: StreamStore, filter: SubjectFilter | None, created_ns: int
) -> int:
    """Where a consumer goes on when only the time of its creation is known; it skips nothing."""
    if config.deliver_policy == "new":
        return max(store.sequence_at(created_ns), 1)
    if config.deliver_policy in ("last", "last_per_subject"):
        return max(store.first_seq, 1)
    return start_sequence(config, store, filter)


EXACT_MAX: Final = 4096
"""So many last messages are counted exactly, and more nearly so."""


class LastPerSubject:
    """The last message of each subject, as far as they are not delivered; false when none are left.

    They are listed when the consumer is made and delivered first. What follows begins after the last of
    them, whatever became of them meanwhile.
    """

    __slots__ = ("_left", "_look_at", "_removals", "_stream", "after")

    def __init__(self, stream: StreamView) -> None:
        self._stream = stream
        self._left: list[int] = []  # the next one last
        self._removals = 0
        self._look_at = 0  # with so many left, see again which are there
        self.after = 0
        """The sequence with which the rest of the stream begins, for the consumer."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def begin(self, sequences: Sequence[int], *, fresh: bool = False) -> None:
        """Deliver these, in ascending order, or none; ``fresh`` says that all of them still exist."""
        self._left = [*reversed(sequences)]
        self._removals = self._stream.removals if fresh else -1
        self._look_at = len(self._left) * 3 // 4 if fresh else len(self._left)
        self.after = sequences[-1] + 1 if sequences else 0

    def to_journal(self, delivered: int) -> list[int]:
        """What to give ``begin`` after a restart, once everything up to ``delivered`` has gone out."""
        if self._left or self.after <= delivered + 1:
            return self._left[::-1]
        return [self.after - 1]  # delivered or removed, but it says where to go on

    def count(self, delivered: int) -> int:
        """How many are left, once everything up to ``delivered`` has gone out.

        Where thousands are left of a stream that is written to, this may count some that are gone: to see
        which are there takes time for each of them, so that is done whenever a quarter has gone out.
        """
        left, stream = self._left, self._stream
        first = max(delivered + 1, stream.store.first_seq)
        while left and left[-1] < first:
            left.pop()
        if len(left) <= EXACT_MAX or len(left) <= self._look_at:
            self._look()
        return len(left)

    def _look(self) -> bool:
        """Forget those that are gone; whether any may have been."""
        left, stream = self._left, self._stream
        if not left or self._removals == stream.removals:
            return False
        left[:] = stream.store.present(left[::-1])
        left.reverse()
        self._removals = stream.removals
        self._look_at = len(left) * 3 // 4
        return True

    def read(self, max_messages: int, max_bytes: int) -> list[StoredRow]:
        """The next ones that are durable, at least one of them. Raises StoreReadError.

        Call it only while ``count`` says that some are left. Then nothing is found where they are not durable
        yet, or are all gone, after which none are left.
        """
        found = self.read_together(max_messages, max_bytes)
        if not found and self._look():
            found = self.read_together(max_messages, max_bytes)
        return found or self.read_each(max_messages)

    def read_together(self, max_messages: int, max_bytes: int) -> list[StoredRow]:
        """The next ones looked up in one go; none where they can only be read one by one."""
        store = self._stream.store
        wanted = self._left[: -max_messages - 1 : -1]
        if wanted and wanted[-1] > store.durable_seq:
            del wanted[bisect_right(wanted, store.durable_seq) :]
        try:
            return list(store.rows_at(wanted, max_bytes).values())
        except StoreReadError:
            return []  # one by one shows how far they can be read

    def read_each(self, max_messages: int) -> list[StoredRow]:
        """``read`` one message after the other, without a limit of bytes, and past damaged ones."""
        found: list[StoredRow] = []
        store = self._stream.store
        for sequence in reversed(self._left):
            if sequence > store.durable_seq or len(found) >= max_messages:
                break
            try:
                message = store.get(sequence)
            except StoreReadError:
                if not found:
                    raise
                break
            if message is not None:
                found.append(message)
        return found
