"""Replay at the original pace: messages keep the distance in time they were stored with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .consumer import Consumer

__all__ = ["OriginalReplay"]


class OriginalReplay:
    """Holds back messages a consumer found when it was opened; what came later is not delayed.

    ``due_ns`` is the monotonic time of the next message held back, 0 when none is.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._last_seq = consumer.stream.store.last_seq
        self._delivered = 0
        self._stored_ns = 0
        self._sent_ns = 0
        self.due_ns = 0

    def room(self, now_ns: int) -> int | None:
        """How many messages may go now: 0 or 1; None when the replay has caught up."""
        consumer = self._consumer
        store, state = consumer.stream.store, consumer.state
        self.due_ns = 0
        if state.next_seq > self._last_seq:
            return None
        if state.delivered_consumer and state.delivered_stream != self._delivered:
            message = store.get(state.delivered_stream)
            self._delivered = state.delivered_stream
            self._stored_ns = message.timestamp_ns if message is not None else 0
            self._sent_ns = now_ns
        following = consumer.read(1, 1)
        if not following or not self._stored_ns:
            return 1
        due_ns = self._sent_ns + following[0][4] - self._stored_ns
        if due_ns <= now_ns:
            return 1
        self.due_ns = due_ns
        return 0
