"""Removes the subscriptions of disconnected clients from the router, some at a time.

They are closed at once, so nothing more is written to them. Removing a hundred thousand from the trie is half
a second of work, and nobody waits for it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ....clock import Clock
from ..timers import TimerQueue
from .router import Router
from .subscription import Subscription

__all__ = ["AT_ONCE_MAX", "Leaving"]

AT_ONCE_MAX: Final = 512
QUEUE_TICKS: Final = 64


class Leaving:
    """The queue of subscriptions that are closed and still in a router."""

    def __init__(self, clock: Clock, timers: TimerQueue) -> None:
        self._clock = clock
        self._timers = timers
        self._queue: deque[tuple[Router, list[Subscription]]] = deque()
        self._left = 0
        self._asked = False

    def __len__(self) -> int:
        """How many are still in a router."""
        return self._left

    def add(self, router: Router, subscriptions: list[Subscription]) -> None:
        """Remove closed subscriptions: now if they are few, otherwise in later ticks. Empties the list."""
        if len(subscriptions) <= AT_ONCE_MAX:
            for subscription in subscriptions:
                router.unsubscribe(subscription)
            return
        self._queue.append((router, subscriptions))
        self._left += len(subscriptions)
        if not self._asked:
            self._go_on()

    def _go_on(self) -> None:
        self._asked = False
        queue = self._queue
        # The longer the queue the more, or clients that come and go would let it grow for ever.
        count = max(AT_ONCE_MAX, self._left // QUEUE_TICKS)
        while count and queue:
            router, subscriptions = queue[0]
            while count and subscriptions:
                router.unsubscribe(subscriptions.pop())
                count -= 1
                self._left -= 1
            if not subscriptions:
                queue.popleft()
        if queue:
            self._asked = True
            self._timers.call_at(self._clock.monotonic_ns(), self._go_on)
