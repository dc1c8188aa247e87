"""Taking messages and entries on the caller's thread: many are brought from the loop at a time.

The classes here are the parts of the generated facades that take more than handing a call over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, TypeVar

from ...errors import ConfigurationError
from ..jetstream.consume import Consumption
from ..jetstream.direct_get import scan
from ..jetstream.message import JetStreamMessage as AioJetStreamMessage
from ..jetstream.ordered import OrderedConsumption
from ..jetstream.stored_message import StreamMessage
from ..jetstream.stream import Stream
from ..jetstream.watch import Watch
from ..message import MessageView
from ..subscription import Subscription
from .loop_thread import LoopThread, call_on_thread, callback_here, iterate
from .messages import JetStreamMessage, Message

__all__ = [
    "ConsumptionReading",
    "OrderedReading",
    "SubscriptionReading",
    "WatchReading",
    "scan_by_lists",
]

M = TypeVar("M", Message, JetStreamMessage)
T = TypeVar("T")

SUBSCRIPTION_BATCH: Final = 256  # messages brought from the loop in one go when iterating
CONSUMPTION_BATCH: Final = 100


class SubscriptionReading(Generic[M]):
    """Takes the messages of a subscription; those of a push consumer are ``JetStreamMessage``."""

    __slots__ = ("_inner", "_messages", "_of", "_taking", "_thread")

    def __init__(self, thread: LoopThread, inner: Subscription) -> None:
        self._thread = thread
        self._inner = inner
        pushed = issubclass(inner._message_type, AioJetStreamMessage)
        kind: Any = JetStreamMessage if pushed else Message
        self._of: Callable[[LoopThread, MessageView], M] = kind._of
        self._messages: deque[M] = deque()
        self._taking = 0  # the thread that takes messages

    @property
    def pending_messages(self) -> int:
        return self._inner.pending_messages + len(self._messages)

    def __iter__(self) -> Iterator[M]:
        return self

    def __next__(self) -> M:
        if not self._messages:
            self._messages.extend(self.next_batch(SUBSCRIPTION_BATCH))
        if not self._messages:
            raise StopIteration
        return self._messages.popleft()

    def next(self, timeout: float | None) -> M:
        if self._messages:
            return self._messages.popleft()
        return self._of(self._thread, self._thread.run(self._inner.next(timeout)))

    def next_batch(self, max_messages: int) -> list[M]:
        self._taking = threading.get_ident()
        if self._messages:
            return [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]
        of, thread = self._of, self._thread
        return [of(thread, m) for m in thread.run(self._inner.next_batch(max_messages))]

    def drain(self) -> None:
        taking = self._taking == threading.get_ident()
        self._thread.run(self._inner._drain_for(callback_here(), taking))

    def start(self, callback: Callable[[M], object]) -> None:
        """Call back with each message on a thread of its own."""
        name = f"subscription {self._inner.subject}"
        call_on_thread(name, self._inner, self, callback, self._thread)


class ConsumptionReading:
    """Takes the messages of a consume. What it holds ready is sent back when it is stopped."""

    __slots__ = ("_inner", "_messages", "_taking", "_thread")

    def __init__(self, thread: LoopThread, inner: Consumption) -> None:
        self._thread = thread
        self._inner = inner
        self._messages: deque[JetStreamMessage] = deque()
        self._taking = 0  # the thread that takes messages

    @property
    def buffered(self) -> int:
        return self._inner.buffered + len(self._messages)

    def __iter__(self) -> Iterator[JetStreamMessage]:
        return self

    def __next__(self) -> JetStreamMessage:
        if not self._messages:
            self._messages.extend(self._take(CONSUMPTION_BATCH))
        if not self._messages:
            raise StopIteration
        return self._messages.popleft()

    def batches(self, max_messages: int) -> Iterator[list[JetStreamMessage]]:
        while messages := self.next_batch(max_messages):
            yield messages

    def next_batch(self, max_messages: int) -> list[JetStreamMessage]:
        return _taken_from(self._messages, max_messages) or self._take(max_messages)

    def _take(self, max_messages: int) -> list[JetStreamMessage]:
        self._taking = threading.get_ident()
        of, thread = JetStreamMessage._of, self._thread
        return [of(thread, m) for m in thread.run(self._inner.next_batch(max_messages))]

    def wait(self) -> None:
        worker = callback_here()
        if worker is not None and worker is self._inner._worker:
            raise ConfigurationError(
                "a consume cannot be waited for inside its own callback; stop() or drain() end it"
            )
        self._thread.run(self._inner.wait())

    def stop(self) -> None:
        for message in self._messages:
            message.nak()
        self._messages.clear()
        self._thread.run(self._inner._stop(callback_here()))

    def drain(self) -> None:
        taking = self._taking == threading.get_ident()
        self._thread.run(self._inner._drain_for(callback_here(), taking))

    def start(self, callback: Callable[[JetStreamMessage], object]) -> None:
        """Call back with each message on a thread of its own."""
        one_by_one = (message for batch in self.batches(1) for message in batch)
        call_on_thread(repr(self._inner), self._inner, one_by_one, callback, self._thread)


class OrderedReading:
    """Takes the messages of an ordered consumer."""

    __slots__ = ("_inner", "_messages", "_thread")

    def __init__(self, thread: LoopThread, inner: OrderedConsumption) -> None:
        self._thread = thread
        self._inner = inner
        self._messages: deque[JetStreamMessage] = deque()

    def __iter__(self) -> Iterator[JetStreamMessage]:
        return self

    def __next__(self) -> JetStreamMessage:
        if not self._messages:
            self._messages.extend(self._take(CONSUMPTION_BATCH))
        if not self._messages:
            raise StopIteration
        return self._messages.popleft()

    def next_batch(self, max_messages: int) -> list[JetStreamMessage]:
        return _taken_from(self._messages, max_messages) or self._take(max_messages)

    def _take(self, max_messages: int) -> list[JetStreamMessage]:
        of, thread = JetStreamMessage._of, self._thread
        return [of(thread, m) for m in thread.run(self._inner.next_batch(max_messages))]


class WatchReading(Generic[T]):
    """Takes the entries of a watch."""

    __slots__ = ("_entries", "_inner", "_thread")

    def __init__(self, thread: LoopThread, inner: Watch[T]) -> None:
        self._thread = thread
        self._inner = inner
        self._entries: deque[T] = deque()

    def initial(self) -> Iterator[T]:
        while self._entries or self._entries_from(self._inner._initial_batch()):
            yield self._entries.popleft()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._entries or self._entries_from(self._inner._next_batch()):
            return self._entries.popleft()
        raise StopIteration

    def _entries_from(self, batch: Coroutine[Any, Any, list[T]]) -> bool:
        self._entries.extend(self._thread.run(batch))
        return bool(self._entries)


def scan_by_lists(
    thread: LoopThread, inner: Stream, *, subject: str, first: int, last: int
) -> Iterator[StreamMessage]:
    """Bring the messages of one answer from the loop in one go."""
    lists = scan(inner._api, inner.name, subject, max(1, first), last)
    for messages in iterate(thread, lists):
        yield from messages


def _taken_from(messages: deque[T], max_messages: int) -> list[T]:
    """The first ``max_messages``, or all of them for 0."""
    count = min(max_messages or len(messages), len(messages))
    return [messages.popleft() for _ in range(count)]
