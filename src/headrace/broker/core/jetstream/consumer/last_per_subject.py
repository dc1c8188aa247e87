"""The messages a consumer starts with when it begins with the last of each subject.

They are chosen when the consumer is made and delivered first; what follows begins after the last of them,
whatever became of them meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .....errors import StoreReadError
from .....message import StoredRow

if TYPE_CHECKING:
    from ..stream.stream import Stream

__all__ = ["Chosen"]


class Chosen:
    """Stream sequences still to deliver before anything else; false when there are none."""

    __slots__ = ("_left", "_removals", "_stream", "after")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._left: list[int] = []  # the next one last
        self._removals = 0
        self.after = 0
        """The sequence with which the rest of the stream begins, for the consumer."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def begin(self, sequences: Sequence[int], *, fresh: bool = False) -> None:
        """Deliver these, which are ascending, or nothing of the kind; ``fresh``: they are all there."""
        self._left = [*reversed(sequences)]
        self._removals = self._stream.removals if fresh else -1
        self.after = sequences[-1] + 1 if sequences else 0

    def to_journal(self, delivered: int) -> list[int]:
        """What ``begin`` is to be told after a restart, with what is delivered up to a sequence."""
        if self._left or self.after <= delivered + 1:
            return self._left[::-1]
        return [self.after - 1]  # it is gone, but where to go on has to be known

    def count(self, delivered: int) -> int:
        """How many are left, with everything delivered up to a sequence."""
        left, stream = self._left, self._stream
        first = max(delivered + 1, stream.store.first_seq)
        while left and left[-1] < first:
            left.pop()
        if left and self._removals != stream.removals:
            left[:] = stream.store.present(left[::-1])
            left.reverse()
            self._removals = stream.removals
        return len(left)

    def read(self, max_messages: int) -> list[StoredRow]:
        """The next ones that are durable; only to be asked while ``count`` says that some are left."""
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
