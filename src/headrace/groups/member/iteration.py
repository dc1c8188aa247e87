"""A membership without a handler: its messages are handed to whoever iterates it, one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..message import GroupMessage


class Iteration:
    """Where the work of a membership meets the loop that takes its messages.

    To the work it looks like a handler. A message is handled once the next one is asked for.

    Attributes:
        is_used: whether anybody has asked for a message.
    """

    def __init__(self) -> None:
        self._offered: deque[tuple[GroupMessage, asyncio.Future[bool]]] = deque()
        self._taken: asyncio.Future[bool] | None = None  # done when the one taken last is handled
        self._reader: asyncio.Future[None] | None = None
        self._over = False
        self.is_used = False

    async def hand_over(self, message: GroupMessage) -> None:
        """Offer a message, and wait until it is handled. What nobody took goes back."""
        if self._over:
            message.nak()
            return
        handled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._offered.append((message, handled))
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        if not await handled:
            message.nak()

    async def next(self) -> GroupMessage | None:
        """The next message; None at the end."""
        self.is_used = True
        self._settle()
        while not self._offered:
            if self._over:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message, self._taken = self._offered.popleft()
        return message

    def end(self) -> None:
        """Hand over nothing more."""
        self._over = True
        self._settle()
        for _, handled in self._offered:
            if not handled.done():
                handled.set_result(False)
        self._offered.clear()
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _settle(self) -> None:
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(True)
        self._taken = None
