"""One flush of the storage at a time, for every engine that shares it.

Several accounts stage into one storage, and a flush commits everything staged, by any of them. So
each engine that has staged something takes part in the next flush, and learns its outcome: an acknowledgement
that left with another account's flush would not know that the flush had failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...ports.storage import Storage
from .turns import PacedCalls, Turns

if TYPE_CHECKING:
    from .flush_barrier import FlushBarrier

__all__ = ["Commits"]

Done = Callable[[Exception | None], None]


class Commits:
    """Flushes one storage for its members, never twice at a time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._members: list[FlushBarrier] = []
        self.in_flight = False
        self._flushing = False
        self.turns = Turns()
        """For long work of any of them."""
        self.paced = PacedCalls(self.turns)

    @property
    def failed(self) -> bool:
        """Whether the storage takes nothing more: a flush is then nothing's."""
        return self._storage.failed is not None

    def join(self, member: FlushBarrier) -> None:
        """From here on, take part in every flush for which something was staged."""
        self._members.append(member)

    def flush(self) -> None:
        """Commit what was staged, unless nothing was or a flush is in flight.

        Storage in memory is done before it returns; what that has set off is committed in the next
        round, not deeper and deeper within this one.
        """
        if self._flushing:
            return
        self._flushing = True
        try:
            while not self.in_flight and any(m.wanted for m in self._members):
                taking_part = [member for member in self._members if member.has_staged]
                self.in_flight = True
                self.paced.flush_begins()
                self._storage.flush(partial(self._done, [m.begin() for m in taking_part]))
        finally:
            self._flushing = False

    def _done(self, told: list[Done], error: Exception | None) -> None:
        self.in_flight = False
        for done in told:
            done(error)
        self.flush()
