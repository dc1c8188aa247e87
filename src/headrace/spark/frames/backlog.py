"""Messages that have come, until they are cut into chunks."""

from __future__ import annotations

from collections import deque
from itertools import accumulate

from .messages import Messages


class Backlog:
    """Delivered messages, in order. The same messages are always cut at the same places, however they came.

    Attributes:
        payload_bytes: the size of all payloads.
    """

    def __init__(self) -> None:
        self._parts: deque[Messages] = deque()
        self._count = 0
        self.payload_bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(self, messages: Messages) -> None:
        """Append some."""
        self._parts.append(messages)
        self._count += len(messages)
        self.payload_bytes += messages.payload_bytes

    def first(self, rows_max: int, bytes_max: int) -> tuple[Messages, ...]:
        """The first ``rows_max`` messages, or as many as have ``bytes_max`` bytes, but at least one.

        They stay here until they are dropped.
        """
        found = self._up_to(min(rows_max, self._count))
        if sum(part.payload_bytes for part in found) > bytes_max:
            sizes = [size for part in found for size in part.payload_sizes()]
            found = self._up_to(sum(1 for total in accumulate(sizes) if total <= bytes_max) or 1)
        return tuple(found)

    def drop(self, first: tuple[Messages, ...]) -> None:
        """Let go of what ``first`` gave."""
        for part in first:
            whole = self._parts.popleft()
            if len(whole) > len(part):
                self._parts.appendleft(whole.part(len(part), len(whole)))
            self._count -= len(part)
            self.payload_bytes -= part.payload_bytes

    def _up_to(self, count: int) -> list[Messages]:
        found: list[Messages] = []
        for part in self._parts:
            found.append(part if len(part) <= count else part.part(0, count))
            count -= len(found[-1])
            if not count:
                break
        return found
