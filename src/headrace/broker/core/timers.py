"""Callbacks at a later time, without arming anything: the shell asks for the next deadline.

One heap of ``(deadline, order, timer)``. Cancelling only marks the timer; marked timers leave when
they reach the top, or all at once when they outnumber the live ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

_COMPACT_AT = 1024  # cancelled timers in the heap before a sweep is worth its cost


class Timer:
    """A callback that was asked for; a ``None`` callback means cancelled or done."""

    __slots__ = ("callback", "queue", "queued")

    def __init__(self, queue: TimerQueue, callback: Callable[[], None]) -> None:
        self.queue = queue
        self.queued = True
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not call it; nothing if it has run or was cancelled."""
        if self.callback is not None:
            self.callback = None
            if self.queued:
                self.queue._cancelled_one()


class TimerQueue:
    """Where the core asks to be called later; the hub runs what is due, in order of deadline."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = 0
        self._cancelled = 0

    def __len__(self) -> int:
        """How many timers are still to run."""
        return len(self._heap) - self._cancelled

    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> Timer:
        """Call once at or after this reading of ``Clock.monotonic_ns``."""
        timer = Timer(self, callback)
        self._order += 1  # equal deadlines run in the order they were asked for
        heapq.heappush(self._heap, (deadline_ns, self._order, timer))
        return timer

    def next_deadline_ns(self) -> int | None:
        """When ``run_due`` has something to do next, or None."""
        heap = self._heap
        while heap:
            deadline_ns, _order, timer = heap[0]
            if timer.callback is not None:
                return deadline_ns
            heapq.heappop(heap)
            self._cancelled -= 1
        return None

    def run_due(self, now_ns: int, is_over: Callable[[], bool] | None = None) -> int:
        """Run what is due at ``now_ns``, in order of deadline; returns how many ran.

        A callback may ask for further timers; those due now as well wait for the next call, so that
        a callback which always asks for "now" cannot keep the caller here. The same goes for the rest once
        ``is_over`` says so, which is asked after each.
        """
        heap = self._heap
        due: list[tuple[int, int, Timer]] = []
        while heap and heap[0][0] <= now_ns:
            entry = heapq.heappop(heap)
            timer = entry[2]
            if timer.callback is None:
                self._cancelled -= 1
            else:
                timer.queued = False
                due.append(entry)
        ran = 0
        try:
            for _deadline_ns, _order, timer in due:
                callback = timer.callback
                if callback is not None:  # else cancelled by one of those before it
                    timer.callback = None
                    ran += 1
                    callback()
                    if is_over is not None and is_over():
                        break
        finally:
            # Time is up, or one callback is broken, which must not take the others of this moment with it.
            for entry in due[ran:]:
                if entry[2].callback is not None:
                    entry[2].queued = True
                    heapq.heappush(heap, entry)
        return ran

    def _cancelled_one(self) -> None:
        self._cancelled += 1
        if self._cancelled > _COMPACT_AT and self._cancelled * 2 > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
