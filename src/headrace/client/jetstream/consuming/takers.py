"""Who has a message of a feed in hand, and what is to be waited for until it is handled."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..message import DeliveredMessage
    from .concurrent import ConcurrentCallbacks


class Takers:
    """Who takes the messages of a feed.

    Attributes:
        last: the message handed over last; None once its taker has come back for more.
        reader: the task that iterates, weakly, or the number of the thread.
        worker: done when the callback is not called any more.
        abreast: calls several callbacks at once, if there are several.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.last: DeliveredMessage | None = None
        self.reader: weakref.ref[asyncio.Task[Any]] | int | None = None
        self.worker: asyncio.Future[None] | None = None
        self.abreast: ConcurrentCallbacks | None = None
        self._loop = loop
        self._returned: asyncio.Future[None] | None = None  # whoever took the last has come back

    def came_back(self) -> None:
        """Whoever took the last message wants another one, or will never take one: it is handled."""
        self.last = None
        if self._returned is not None and not self._returned.done():
            self._returned.set_result(None)

    def is_taken_by(self, caller: object) -> bool:
        """Whether ``caller``, a task or the number of a thread, takes the messages."""
        reader = self.reader() if isinstance(self.reader, weakref.ref) else self.reader
        if self.abreast is not None and self.abreast.is_one(caller):
            return True
        return caller is not None and caller in (self.worker, reader)

    def in_hand(self, caller: object) -> list[asyncio.Future[Any]]:
        """What is to be waited for, until one of it is done, until the message in hand is handled; nothing
        if none is, as far as is known, or if it is ``caller`` who has it."""
        if self.is_taken_by(caller):
            return []
        if self.worker is not None:
            return [] if self.worker.done() else [self.worker]
        if self.last is None or self.last.is_answered:
            return []
        waits: list[asyncio.Future[Any]] = []
        if isinstance(self.reader, weakref.ref):
            task = self.reader()
            if task is None or task.done():
                return []
            waits.append(task)
        if self._returned is None or self._returned.done():
            self._returned = self._loop.create_future()
        return [*waits, self._returned]

    def count_in_hand(self) -> int:
        """How many messages are being handled, as far as is known."""
        if self.abreast is not None:
            return self.abreast.running
        return int(self.last is not None and not self.last.is_answered)

    def hands(self, caller: object) -> list[list[asyncio.Future[Any]]]:
        """For each message in hand, ``in_hand``."""
        if self.abreast is None:
            return [self.in_hand(caller)]
        return [[lane] for lane in self.abreast.others(caller)]
