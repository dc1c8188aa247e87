"""The blocking subscription."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from .. import subscription as aio_subscription
from ..message import Message as AioMessage
from .messages import Message
from .portal import Blocking, Portal, blocking, call_on_thread, callback_here

__all__ = ["Subscription"]

BATCH_MESSAGES = 256  # fetched from the loop's thread in one go when iterating


class Subscription(Blocking):
    """Messages of one subject, in order: ``for message in subscription``, or a callback.

    The blocking twin of ``headrace.Subscription``; to be iterated by one thread at a time.
    """

    __slots__ = ("_messages", "_taking")
    _inner: aio_subscription.Subscription

    def __init__(self, portal: Portal, inner: aio_subscription.Subscription) -> None:
        super().__init__(portal, inner)
        self._messages: deque[Message] = deque()
        self._taking = 0  # the thread that takes messages

    @property
    def subject(self) -> str:
        """The pattern subscribed to."""
        return self._inner.subject

    @property
    def queue(self) -> str:
        """The queue group, or ""."""
        return self._inner.queue

    @property
    def dropped(self) -> int:
        """Messages lost to the limits."""
        return self._inner.dropped

    @property
    def pending_messages(self) -> int:
        """Messages that came and were not taken yet."""
        return self._inner.pending_messages + len(self._messages)

    @property
    def pending_bytes(self) -> int:
        """Their payload and header bytes, without those an iteration holds ready."""
        return self._inner.pending_bytes

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if not self._messages:
            self._messages.extend(self.next_batch(BATCH_MESSAGES))
        if not self._messages:
            raise StopIteration
        return self._messages.popleft()

    def next(self, timeout: float | None = None) -> Message:
        """The next message. Raises TimeoutError, or ConnectionClosedError when it is over."""
        if self._messages:
            return self._messages.popleft()
        return self._wrap([self._portal.run(self._inner.next(timeout))])[0]

    def next_batch(self, max_messages: int = 1000) -> list[Message]:
        """What is there, at least one message, at most ``max_messages``; empty when it is over."""
        self._taking = threading.get_ident()
        if self._messages:
            return [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]
        return self._wrap(self._portal.run(self._inner.next_batch(max_messages)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Unsubscribe."""
        self.unsubscribe()

    unsubscribe = blocking(aio_subscription.Subscription.unsubscribe)

    def drain(self) -> None:
        """End it, but first receive what is under way and wait until all of it has been taken.

        Called by whoever takes the messages, also by its callback, it does not wait for that.
        """
        taking = self._taking == threading.get_ident()
        self._portal.run(self._inner._drain_for(callback_here(), taking))

    def _wrap(self, messages: list[AioMessage]) -> list[Message]:
        return [Message._of(self._portal, m._session, m._frame) for m in messages]

    def _start(self, callback: Callable[[Message], object]) -> None:
        name = f"subscription {self.subject}"
        call_on_thread(name, self._inner, self, callback, self._portal)
