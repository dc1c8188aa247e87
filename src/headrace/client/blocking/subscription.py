"""``Subscription`` and ``PushSubscription`` for threads: the loop hands over many messages at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Self, cast

from ...blocking import blocking
from ..jetstream.push import PushSubscription as AioPushSubscription
from ..subscription import Subscription as AioSubscription
from .loop_thread import Facade, LoopThread, call_on_thread, callback_here
from .messages import JetStreamMessage, Message, take

BROUGHT_MAX: Final = 256  # messages brought from the loop in one go when iterating


class Subscription(Facade):
    """Messages of one subject, in order: ``for message in subscription``, or a callback.

    To be iterated by one thread at a time. Messages wait in memory until taken, up to two limits; what
    comes beyond them is dropped, counted in ``dropped`` and reported as an event with
    SlowConsumerError. Iteration ends when the subscription is over: unsubscribed, drained, its maximum
    reached, or the connection closed.

    Attributes:
        subject: the pattern subscribed to.
        queue: the queue group, or "".
        dropped: messages lost to the limits.
    """

    __slots__ = ("_messages", "_taking")
    _inner: AioSubscription
    _kind: ClassVar[Any] = Message

    def __init__(self, thread: LoopThread, inner: AioSubscription) -> None:
        super().__init__(thread, inner)
        self._messages: deque[Message] = inner._with_thread
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

    # Taking messages

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
        self._taking = threading.get_ident()
        while True:
            try:
                return self._messages.popleft()
            except IndexError:  # also where the loop has taken back what was brought
                if not self._thread.run(self._bring(BROUGHT_MAX)):
                    raise StopIteration from None

    def next(self, timeout: float | None = None) -> Message:
        """The next message.

        Raises:
            RequestTimeoutError: none came within ``timeout`` seconds.
            ConnectionClosedError: the subscription is over.
        """
        try:
            return self._messages.popleft()
        except IndexError:
            taking = self._inner.next(timeout)
        message: Message = self._kind._of(self._thread, self._thread.run(taking))
        return message

    def next_batch(self, max_messages: int = 1000) -> list[Message]:
        """What is there, at least one message, at most ``max_messages``; empty when it is over."""
        self._taking = threading.get_ident()
        held = self._messages
        if not held:
            self._thread.run(self._bring(max_messages))
        return list(take(held, min(max_messages, len(held))))

    async def _bring(self, max_messages: int) -> bool:
        """On the loop: have some messages more, at least one; False at the end."""
        of, thread = self._kind._of, self._thread
        brought = [of(thread, m) for m in await self._inner.next_batch(max_messages)]
        self._messages.extend(brought)
        return bool(brought)

    def _start(self, callback: Callable[[Any], object] | None) -> Self:
        """Call back with each message on a thread of its own."""
        if callback is not None:
            name = f"subscription {self._inner.subject}"
            call_on_thread(name, self._inner, self, callback, self._thread, self._failed)
        return self

    def _failed(self, message: Any, error: Exception) -> None:
        """The callback raised: tell whoever asked, and report it, on the loop."""
        self._thread.post(lambda: self._inner._failed(message, error))

    # Ending

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Unsubscribe."""
        self.unsubscribe()

    unsubscribe = blocking(AioSubscription.unsubscribe)

    def drain(self) -> None:
        """End it, but first receive what is under way and wait until all of it has been taken.

        Called by whoever takes the messages, also by its callback, it does not wait for that.
        """
        taking = self._taking == threading.get_ident()
        self._thread.run(self._inner._drain_for(callback_here(), taking))


class PushSubscription(Subscription):
    """Messages of a push consumer, in order, to be acknowledged as its configuration asks. Made by
    ``Consumer.listen``.

    What it tells of besides goes to ``on_error``, or else becomes an event of the connection: silence
    (HeartbeatMissedError) where the consumer has heartbeats, and messages that went missing on the way,
    which come again only where they have to be acknowledged.

    Attributes:
        missed: messages that went missing, as far as it is known.
    """

    __slots__ = ()
    _inner: AioPushSubscription
    _kind = JetStreamMessage

    @property
    def missed(self) -> int:
        """Messages that went missing, as far as it is known."""
        return self._inner.missed

    def __iter__(self) -> Iterator[JetStreamMessage]:  # type: ignore[override]
        return self

    def __next__(self) -> JetStreamMessage:  # type: ignore[override]
        return cast(JetStreamMessage, super().__next__())

    def next(self, timeout: float | None = None) -> JetStreamMessage:  # type: ignore[override]
        """The next message. Raises as ``Subscription.next``."""
        return cast(JetStreamMessage, super().next(timeout))

    def next_batch(self, max_messages: int = 1000) -> list[JetStreamMessage]:  # type: ignore[override]
        """What is there, at least one message, at most ``max_messages``; empty when it is over."""
        return cast(list[JetStreamMessage], super().next_batch(max_messages))

    # Ending

    unsubscribe = blocking(AioPushSubscription.unsubscribe)
