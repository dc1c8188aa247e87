"""Messages of several subscriptions in one line, in the order in which they came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...client import Message

MESSAGES_MAX: Final = 100_000


class Arrivals:
    """Hand ``put`` to each subscription as its callback, and iterate.

    Up to ``MESSAGES_MAX`` wait to be shown; what comes beyond that is dropped.

    Attributes:
        dropped: how many were.
    """

    def __init__(self, most: int = MESSAGES_MAX) -> None:
        self.dropped = 0
        self._queue: asyncio.Queue[Message] = asyncio.Queue(most)

    def put(self, message: Message) -> None:
        """One has come."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.dropped += 1

    def __aiter__(self) -> Arrivals:
        return self

    async def __anext__(self) -> Message:
        return await self._queue.get()
