"""How many messages a consumer has still to deliver: exact, and nobody's work until somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....subjects import SubjectFilter

if TYPE_CHECKING:
    from ..stream.stream import Stream

__all__ = ["PendingCount"]


class PendingCount:
    """Counts the messages from a position on that match a filter.

    The last answer is kept. Messages appended since are counted by themselves; only a removal that may
    have hit counted messages makes it count anew.
    """

    __slots__ = ("_counted_to", "_filter", "_next_seq", "_removals", "_stream", "_value")

    def __init__(self, stream: Stream, filter: SubjectFilter | None) -> None:
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
        """Deliveries moved the position; ``value`` is what is left from there on."""
        self._value = value
        self._next_seq = next_seq
