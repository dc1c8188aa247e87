"""What is left to deliver to a consumer for the first time: where it starts, counted, read, held back by a
replay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import neg
from typing import TYPE_CHECKING, Any, Final

from .....api.consumers import ConsumerConfig
from .....api.times import parse_time
from .....clock import Clock
from .....errors import StoreReadError
from .....message import StoredRow
from .....subjects import SubjectFilter
from ...deliveries import Deliveries
from ...ports import StreamStore
from ..config.consumer import filter_of
from .delivery_state import DeliveryState

if TYPE_CHECKING:
    from ..stream.stream import Stream

_EVERYTHING: Final = SubjectFilter([b">"])
EXACT_MAX: Final = 4096
"""So many last messages are counted exactly, and more nearly so."""
_UNLIMITED: Final = 1 << 30


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


class LastPerSubject:
    """The last message of each subject, as far as they are not delivered; false when none are left.

    They are listed when the consumer is made and delivered first. What follows begins after the last of
    them, whatever became of them meanwhile.
    """

    __slots__ = ("_left", "_look_at", "_removals", "_stream", "after")

    def __init__(self, stream: Stream) -> None:
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
        if left and left[-1] < first:
            del left[bisect_right(left, -first, key=neg) :]
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


class PendingCount:
    """Counts the messages from a position on that match a filter, exactly and only when asked.

    It keeps the last answer. Messages appended since are counted on their own; only a removal that may
    have hit counted messages makes it count anew.
    """

    __slots__ = ("_counted_to", "_filter", "_next_seq", "_reads", "_removals", "_stream", "_value")

    def __init__(self, stream: Stream, filter: SubjectFilter | None, reads: ReadTogether) -> None:
        self._stream = stream
        self._filter = filter
        self._reads = reads
        self._value = 0
        self._next_seq = -1
        self._counted_to = 0
        self._removals = -1

    def value(self, next_seq: int) -> int:
        """Matching messages at or after ``next_seq``."""
        stream = self._stream
        store = stream.store
        last_seq = store.last_seq
        if (
            self._next_seq == next_seq
            and self._removals == stream.removals
            and store.first_seq <= next_seq
        ):
            if last_seq != self._counted_to:
                first_new = max(self._counted_to + 1, next_seq)
                self._value += self._reads.count(stream, first_new, self._filter)
        else:
            self._value = self._reads.count(stream, next_seq, self._filter)
            self._next_seq = next_seq
            self._removals = stream.removals
        self._counted_to = last_seq
        return self._value

    def moved(self, old_seq: int, next_seq: int) -> None:
        """The position moved over messages that do not match."""
        if self._next_seq == old_seq:
            self._next_seq = next_seq

    def advance(self, value: int, next_seq: int) -> None:
        """Deliveries moved the position; ``value`` messages are left from there on."""
        self._value = value
        self._next_seq = next_seq


class ReadTogether:
    """What consumers read while they are served one after the other, ``with`` it.

    Of those that have come as far in a stream, and want the same of it, the first one reads and counts for
    all, and what is sent of it is made once. Nothing is kept until the next time.
    """

    def __init__(self) -> None:
        self._is_open = False
        self._last: dict[StreamStore, tuple[tuple[Any, ...], list[StoredRow]]] = {}
        self._counted: dict[StreamStore, tuple[tuple[Any, ...], int]] = {}
        self._sent: Deliveries | None = None

    def __enter__(self) -> None:
        self._is_open = True

    def __exit__(self, *exc: object) -> None:
        self._is_open = False
        self._last.clear()
        self._counted.clear()
        self._sent = None

    def rows(
        self,
        stream: Stream,
        start_seq: int,
        filter: SubjectFilter | None,
        max_messages: int,
        max_bytes: int,
    ) -> list[StoredRow]:
        """The durable messages from ``start_seq`` on. Raises StoreReadError."""
        store = stream.store
        durable_seq = store.durable_seq
        if not self._is_open:
            return store.rows(start_seq, filter, max_messages, max_bytes, durable_seq)
        # What is stored is the same as long as as many messages are there, of as many that ever were.
        there = durable_seq, store.last_seq, store.messages, stream.removals
        key = start_seq, filter, max_messages, max_bytes, there
        known = self._last.get(store)
        if known is not None and known[0] == key:
            return known[1]
        found = store.rows(start_seq, filter, max_messages, max_bytes, durable_seq)
        self._last[store] = key, found
        return found

    def count(self, stream: Stream, start_seq: int, filter: SubjectFilter | None) -> int:
        """How many messages from ``start_seq`` on match, durable or not."""
        store = stream.store
        if not self._is_open:
            return store.count(filter, start_seq)
        key = start_seq, filter, store.last_seq, store.messages, stream.removals
        known = self._counted.get(store)
        if known is None or known[0] != key:
            known = self._counted[store] = key, store.count(filter, start_seq)
        return known[1]

    def deliveries(self, rows: list[StoredRow], consumer_seq: int, pending: int) -> Deliveries:
        """What is sent of these: the same for all consumers that are as far in every respect."""
        sent = self._sent
        if (
            sent is None
            or sent.rows is not rows
            or sent.consumer_seq != consumer_seq
            or sent.pending != pending
        ):
            sent = Deliveries(rows, consumer_seq, pending)
            if self._is_open:
                self._sent = sent
        return sent


class Backlog:
    """The messages of a stream that one consumer has not been given yet."""

    def __init__(
        self,
        stream: Stream,
        state: DeliveryState,
        clock: Clock,
        reads: ReadTogether,
        wake: Callable[[], None],
    ) -> None:
        """``wake`` is called when a message that was held back may go."""
        self._stream = stream
        self._reads = reads
        self.deliveries = reads.deliveries
        """What is sent of messages that were read."""
        self._state = state
        self._clock = clock
        self._wake = wake
        self.last_per_subject = LastPerSubject(stream)
        self.replay: OriginalReplay | None = None
        """Holds messages back that are replayed at their original pace, until that has caught up."""

    def configure(self, config: ConsumerConfig) -> None:
        self.filter = filter_of(config)
        self._pending = PendingCount(self._stream, self.filter, self._reads)
        self._max_ack_pending = config.max_ack_pending if self._state.tracks else -1
        self._replays = config.replay_policy == "original"

    def close(self) -> None:
        self.last_per_subject.begin(())

    def begin_replay(self) -> None:
        """Hold back what is stored now, if the configuration asks for the original pace."""
        if self._replays:
            self.replay = OriginalReplay(self, self._stream, self._state)

    def read(self, max_messages: int, max_bytes: int) -> list[StoredRow]:
        """The next messages; only durable ones. Raises StoreReadError."""
        store = self._stream.store
        next_seq = self._state.next_seq
        first = self.last_per_subject
        if next_seq < first.after:
            if first.count(self._state.delivered_stream):
                found = first.read(max_messages, max_bytes)
                if found or first:
                    return found
            self.skip_to(first.after)
            next_seq = self._state.next_seq
        if next_seq > store.durable_seq:
            return []
        return self._reads.rows(self._stream, next_seq, self.filter, max_messages, max_bytes)

    def room(self) -> int:
        """How many may go out: by the deliveries that are pending, and by the replay."""
        limit = self._max_ack_pending
        room = limit - len(self._state.pending) if limit > 0 else _UNLIMITED
        if self.replay is not None:
            due = self.replay.room(self._clock.monotonic_ns())
            if due is None:
                self.replay = None
            else:
                room = min(room, due)
        return room

    @property
    def is_full(self) -> bool:
        """Whether as many deliveries are pending as may be."""
        return 0 < self._max_ack_pending <= len(self._state.pending)

    def num_pending(self) -> int:
        state, first = self._state, self.last_per_subject
        left = first.count(state.delivered_stream)
        return left + self._pending.value(max(state.next_seq, first.after))

    # -- time

    def next_time_ns(self) -> int | None:
        return self.replay.due_ns or None if self.replay is not None else None

    def run_due(self, now_ns: int) -> None:
        if self.replay is not None and 0 < self.replay.due_ns <= now_ns:
            self.replay.due_ns = 0
            self._wake()

    # -- positions

    def advance(self, pending: int) -> None:
        """Deliveries moved the position; ``pending`` messages are left."""
        if not self.last_per_subject:
            self._pending.advance(pending, self._state.next_seq)

    def skip_to(self, next_seq: int) -> None:
        """Go on at ``next_seq``: all before it is gone."""
        if next_seq > self._state.next_seq:
            self._pending.moved(self._state.next_seq, next_seq)
            self._state.next_seq = next_seq


class OriginalReplay:
    """Replay at the original pace: messages keep the distance in time at which they were stored.

    It holds back what the consumer found when it was opened; later messages are not delayed. ``due_ns``
    is the monotonic time of the next message held back, 0 when none is.
    """

    def __init__(self, backlog: Backlog, stream: Stream, state: DeliveryState) -> None:
        self._backlog = backlog
        self._store = stream.store
        self._state = state
        self._last_seq = stream.store.last_seq
        self._delivered = 0
        self._stored_ns = 0
        self._sent_ns = 0
        self.due_ns = 0

    def room(self, now_ns: int) -> int | None:
        """How many messages may go now: 0 or 1; None when the replay has caught up."""
        state = self._state
        self.due_ns = 0
        if state.next_seq > self._last_seq:
            return None
        if state.delivered_consumer and state.delivered_stream != self._delivered:
            message = self._store.get(state.delivered_stream)
            self._delivered = state.delivered_stream
            self._stored_ns = message.timestamp_ns if message is not None else 0
            self._sent_ns = now_ns
        following = self._backlog.read(1, 1)
        if not following or not self._stored_ns:
            return 1
        due_ns = self._sent_ns + following[0][4] - self._stored_ns
        if due_ns <= now_ns:
            return 1
        self.due_ns = due_ns
        return 0
