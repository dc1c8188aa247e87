"""How many handlers of a member run at once, over all of its consumers."""

from __future__ import annotations

import asyncio
from collections import deque


class HandlerLimit:
    """So many places for handlers. Who waits for one gets it in turn.

    A member that has one consumer counts its handlers itself; one with a consumer for each partition has
    this between them.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    async def take(self) -> None:
        """A place, as soon as there is one."""
        if self._free and not self._waiting:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give()  # it was ours already
            raise

    def give(self) -> None:
        """A place is free: the next one who waits has it."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
