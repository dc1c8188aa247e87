"""What a reader awaits until a message has come, and how it goes on: where the message was received."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

__all__ = ["Waiter"]


class Waiter:
    """Awaited by one task at a time, as often as that wants.

    A future lets its task go on in the event loop's next turn. With one message under way at a time that turn
    is a good part of what a message costs. ``wake_now`` runs the task's next step at once instead, in the
    task's own context: ``current_task``, ``timeout``, cancellation and context variables are as ever.

    To a task this is a future: asyncio knows those by what they have, not by their class (``isfuture``).

    Args:
        loop: the tasks'.
        at_once: whether whoever calls ``wake_now`` can bear that the task runs there, and does whatever it
            wants. If not, it goes on in the next turn.
    """

    __slots__ = (
        "_asyncio_future_blocking", "_at_once", "_callback", "_cancelled", "_context", "_is_awaited",
        "_loop",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, *, at_once: bool) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._at_once = at_once
        self._callback: Callable[[Waiter], object] | None = None
        self._context: Context | None = None
        self._cancelled: asyncio.CancelledError | None = None
        self._is_awaited = False

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits, or is on its way on."""
        return self._is_awaited

    def __await__(self) -> Generator[Any, None, None]:
        self._is_awaited = True
        self._asyncio_future_blocking = True
        try:
            yield self
        finally:
            self._is_awaited = False
            self._callback = self._context = self._cancelled = None

    def wake(self) -> None:
        """Let the task that waits go on, in the loop's next turn."""
        callback = self._callback
        if callback is not None:
            self._callback = None
            self._loop.call_soon(callback, self, context=self._context)

    def wake_now(self) -> bool:
        """Let it go on here and now; whether one did. Within another task, of which there is one at a time,
        as ``wake``."""
        callback, context = self._callback, self._context
        if callback is None:
            return False
        if not self._at_once or context is None or asyncio.current_task(self._loop) is not None:
            self.wake()
            return False
        self._callback = None
        context.run(callback, self)
        return True

    # What a task wants of a future

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it belongs to."""
        return self._loop

    def add_done_callback(
        self, callback: Callable[[Waiter], object], *, context: Context | None = None
    ) -> None:
        """Called by the task: how it goes on."""
        self._callback = callback
        self._context = context

    def cancel(self, msg: Any = None) -> bool:
        """Called by the task when it is cancelled. False: it is on its way on already."""
        if self._callback is None:
            return False
        self._cancelled = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self.wake()
        return True

    def result(self) -> None:
        """Called by the task when it goes on."""
        if self._cancelled is not None:
            raise self._cancelled
