"""A membership without a handler: its messages are handed to whoever iterates it, one at a time."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...message import GroupMessage


class Iteration:
    """Where the work of a membership meets the loop that takes its messages.

    To the work it looks like a handler. A message is handled once the next one is asked for.

    Attributes:
        is_used: whether anybody has asked for a message.
        reader: who asks: a task, or the number of a thread.
    """

    def __init__(self) -> None:
        self._offered: deque[tuple[GroupMessage, asyncio.Future[bool]]] = deque()
        self._taken: tuple[GroupMessage, asyncio.Future[bool]] | None = None  # last
        self.reader: weakref.ref[asyncio.Task[Any]] | int | None = None
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
        self._note_reader()
        self._settle(True)
        while not self._offered:
            if self._over:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        self._taken = self._offered.popleft()
        return self._taken[0]

    def end(self, caller: object, patience_s: float) -> None:
        """Hand over nothing more. The message in somebody's hands is waited for, until who has it comes back
        for more or is gone, at most ``patience_s``, and not if that is ``caller``: then it goes back, unless
        it was answered."""
        self._over = True
        task = self.reader() if isinstance(self.reader, weakref.ref) else None
        if caller is not None and caller in (task, self.reader):
            self._let_go()
        elif self._taken is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(patience_s, self._let_go)
            if task is not None:
                task.add_done_callback(lambda _: self._let_go())
            elif not self._reads_on_a_thread():
                self._let_go()
        for _, handled in self._offered:
            if not handled.done():
                handled.set_result(False)
        self._offered.clear()
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _note_reader(self) -> None:
        if not isinstance(self.reader, int) and (task := asyncio.current_task()) is not None:
            self.reader = weakref.ref(task)

    def _reads_on_a_thread(self) -> bool:
        return any(each.ident == self.reader for each in threading.enumerate())

    def _let_go(self) -> None:
        """Nobody will say that the message is handled."""
        self._settle(self._taken is None or self._taken[0].is_answered)

    def _settle(self, handled: bool) -> None:
        if self._taken is not None and not self._taken[1].done():
            self._taken[1].set_result(handled)
        self._taken = None
