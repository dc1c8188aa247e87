"""Waiting in a task: without a turn of the event loop of its own, and with one timer for many."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Final


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

    # On the class, as one is made for each request: what is not set costs nothing.
    _asyncio_future_blocking = False
    _callback: Callable[[Any], object] | None = None
    _context: Context | None = None
    _cancelled: asyncio.CancelledError | None = None
    _is_awaited = False

    def __init__(self, loop: asyncio.AbstractEventLoop, *, at_once: bool) -> None:
        self._loop = loop
        self._at_once = at_once

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits, or is on its way on."""
        return self._is_awaited

    def __await__(self) -> Generator[Any, None, Any]:
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
        try:
            context.run(callback, self)
        except (
            KeyboardInterrupt,
            SystemExit,
        ) as error:  # it ends the loop, not what was received here
            self._loop.call_soon(_raise, error)
        return True

    # What a task wants of a future

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it belongs to."""
        return self._loop

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
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
        cancelled = self._cancelled
        if cancelled is not None:
            self._cancelled = None
            try:
                raise cancelled
            finally:
                del cancelled  # or it would hold itself, by this frame


def _raise(error: BaseException) -> None:
    """Raise it, where the loop calls this."""
    raise error


class Outcome(Waiter, ABC):
    """Awaited once, for something that may be there already.

    Attributes:
        is_over: whether it is there.
        error: what is raised for it.
    """

    is_over = False
    error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        """It is there, or nothing but an error is: the task goes on in the loop's next turn."""
        if not self.is_over:
            self.is_over, self.error = True, error
            self.wake()

    @abstractmethod
    def late(self, seconds: float) -> None:
        """The time for it is over."""


LANES_MIN: Final = 16  # of more it is looked which are in use


class _Lane:
    """Those that may wait equally long, in the order in which they began, each until when."""

    __slots__ = ("seconds", "timer", "until")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.until: dict[Outcome, float] = {}
        self.timer: asyncio.TimerHandle | None = None


class TimeLimits:
    """How long outcomes are waited for. There is a timer of the loop for each length of time, not for each
    outcome: most of them come, and so often that making and cancelling theirs would show."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time = loop.time
        self._lanes: dict[float, _Lane] = {}
        self._lanes_max = LANES_MIN

    def begin(self, outcome: Outcome, seconds: float) -> dict[Outcome, float]:
        """``outcome.late()`` is called after this time, unless it was taken from what is returned."""
        lane = self._lanes.get(seconds)
        if lane is None:
            if len(self._lanes) >= self._lanes_max:
                self._leave_unused()
            lane = _Lane(seconds)
            lane.timer = self._loop.call_later(seconds, self._ring, lane)
            self._lanes[seconds] = lane
        lane.until[outcome] = self._time() + seconds
        return lane.until

    def close(self) -> None:
        """Nobody waits any more."""
        for lane in self._lanes.values():
            lane.until.clear()
        self._leave_unused()

    def _leave_unused(self) -> None:
        """Forget the lengths that nobody waits for now: there are many where each wait has its own."""
        for lane in [each for each in self._lanes.values() if not each.until]:
            if lane.timer is not None:
                lane.timer.cancel()
            del self._lanes[lane.seconds]
        self._lanes_max = max(LANES_MIN, 2 * len(self._lanes))

    def _ring(self, lane: _Lane) -> None:
        now = self._time()
        late: list[Outcome] = []
        for outcome, until in lane.until.items():
            if until > now:
                lane.timer = self._loop.call_at(until, self._ring, lane)
                break
            late.append(outcome)
        else:
            self._lanes.pop(lane.seconds, None)
        for outcome in late:
            del lane.until[outcome]
        for outcome in late:
            outcome.late(lane.seconds)
