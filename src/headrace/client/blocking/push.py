"""``PushSubscription`` for threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ..jetstream.push import PushSubscription as AioPushSubscription
from .messages import JetStreamMessage
from .methods import blocking
from .subscription import Subscription


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
