"""Where a consumer starts: the deliver policies, and the messages that one of them begins with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .....api.consumers import ConsumerConfig
from .....api.times import parse_time
from .....errors import StoreReadError
from .....message import StoredRow
from .....subjects import SubjectFilter
from ...ports.storage import StreamStore
from ..ports import StreamView


def start_sequence(config: ConsumerConfig, store: StreamStore, filter: SubjectFilter | None) -> int:
    """The first stream sequence a new consumer looks at."""
    first, after_last = max(store.first_seq, 1), store.last_seq + 1
    if config.deliver_policy == "all":
        return first
    if config.deliver_policy == "last":
        last = store.last_matching(filter) if filter is not None else 0
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


class LastPerSubject:
    """The last message of each subject, as far as they are not delivered; false when none are left.

    They are listed when the consumer is made and delivered first. What follows begins after the last of
    them, whatever became of them meanwhile.
    """

    __slots__ = ("_left", "_removals", "_stream", "after")

    def __init__(self, stream: StreamView) -> None:
        self._stream = stream
        self._left: list[int] = []  # the next one last
        self._removals = 0
        self.after = 0
        """The sequence with which the rest of the stream begins, for the consumer."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def begin(self, sequences: Sequence[int], *, fresh: bool = False) -> None:
        """Deliver these, in ascending order, or none; ``fresh`` says that all of them still exist."""
        self._left = [*reversed(sequences)]
        self._removals = self._stream.removals if fresh else -1
        self.after = sequences[-1] + 1 if sequences else 0

    def to_journal(self, delivered: int) -> list[int]:
        """What to give ``begin`` after a restart, once everything up to ``delivered`` has gone out."""
        if self._left or self.after <= delivered + 1:
            return self._left[::-1]
        return [self.after - 1]  # delivered or removed, but it says where to go on

    def count(self, delivered: int) -> int:
        """How many are left, once everything up to ``delivered`` has gone out."""
        left, stream = self._left, self._stream
        first = max(delivered + 1, stream.store.first_seq)
        while left and left[-1] < first:
            left.pop()
        if left and self._removals != stream.removals:
            left[:] = stream.store.present(left[::-1])
            left.reverse()
            self._removals = stream.removals
        return len(left)

    def read(self, max_messages: int, max_bytes: int) -> list[StoredRow]:
        """The next ones that are durable, at least one of them. Raises StoreReadError.

        Call it only while ``count`` says that some are left.
        """
        return self.read_together(max_messages, max_bytes) or self.read_each(max_messages)

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
