"""Who waits while the disk is behind: those who keep it busy, so that whoever stores little does not.

What is staged is committed in the order in which it came. So a message waits for all bytes before it, and
whoever fills that queue decides how long everybody waits. While there is more in it than the disk takes in a
moment, a connection stages its share, and is read again when the queue is short.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from ....limits import INGEST_BEHIND_BYTES, INGEST_SHARE_BYTES
from ...core.hub import Hub

_SHORT_BYTES: Final = INGEST_BEHIND_BYTES * 3 // 4  # the disk has work until those held say more


class Publisher(Protocol):
    """Who may have to wait."""

    def hold_reading(self, hold: bool) -> None:
        """Say no more, or go on."""


class Pressure:
    """One per hub; looks at the queue after each tick."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._shares: dict[Publisher, int] = {}
        self._held: dict[Publisher, None] = {}
        self.is_behind = False
        """Whether what a connection stages has to be told: see ``staged``."""

    def look(self) -> Iterable[Publisher]:
        """See how long the queue is; returns who may go on."""
        queued = self._hub.queued_bytes
        if not self.is_behind:
            self.is_behind = queued > INGEST_BEHIND_BYTES
            return ()
        if queued > _SHORT_BYTES:
            return ()
        self.is_behind = False
        self._shares.clear()
        released, self._held = self._held, {}
        return released

    def staged(self, publisher: Publisher, size: int) -> None:
        """It has staged so much more since ``is_behind``; who has had its share says no more for now."""
        share = self._shares.get(publisher, 0) + size
        self._shares[publisher] = share
        if share > INGEST_SHARE_BYTES and publisher not in self._held:
            self._held[publisher] = None
            publisher.hold_reading(True)

    def holds(self, publisher: Publisher) -> bool:
        """Whether it waits for the queue to be short."""
        return publisher in self._held

    def forget(self, publisher: Publisher) -> None:
        """It has left."""
        self._shares.pop(publisher, None)
        self._held.pop(publisher, None)
