"""What is left to deliver to a consumer for the first time: counted, read, and held back by a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .....api.consumers import ConsumerConfig
from .....clock import Clock
from .....message import StoredRow
from .....subjects import SubjectFilter
from ..config.consumer import filter_of
from ..ports import StreamView
from .delivery_state import DeliveryState
from .start import LastPerSubject

_UNLIMITED: Final = 1 << 30


class PendingCount:
    """Counts the messages from a position on that match a filter, exactly and only when asked.

    It keeps the last answer. Messages appended since are counted on their own; only a removal that may
    have hit counted messages makes it count anew.
    """

    __slots__ = ("_counted_to", "_filter", "_next_seq", "_removals", "_stream", "_value")

    def __init__(self, stream: StreamView, filter: SubjectFilter | None) -> None:
        self._stream = stream
        self._filter = filter
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
                self._value += store.count(self._filter, max(self._counted_to + 1, next_seq))
        else:
            self._value = store.count(self._filter, next_seq)
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


class Backlog:
    """The messages of a stream that one consumer has not been given yet."""

    def __init__(
        self, stream: StreamView, state: DeliveryState, clock: Clock, wake: Callable[[], None]
    ) -> None:
        """``wake`` is called when a message that was held back may go."""
        self._stream = stream
        self._state = state
        self._clock = clock
        self._wake = wake
        self.last_per_subject = LastPerSubject(stream)
        self.replay: OriginalReplay | None = None
        """Holds messages back that are replayed at their original pace, until that has caught up."""

    def configure(self, config: ConsumerConfig) -> None:
        self.filter = filter_of(config)
        self._pending = PendingCount(self._stream, self.filter)
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
        return store.rows(next_seq, self.filter, max_messages, max_bytes, store.durable_seq)

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

    def __init__(self, backlog: Backlog, stream: StreamView, state: DeliveryState) -> None:
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
