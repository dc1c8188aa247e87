"""The blocking subscription to a push consumer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from .messages import JetStreamMessage
from .subscription import Subscription

if TYPE_CHECKING:
    from ..jetstream import push as aio
    from ..message import Message as AioMessage

__all__ = ["PushSubscription"]


class PushSubscription(Subscription):
    """Messages of a push consumer. The blocking twin of ``headrace.PushSubscription``."""

    __slots__ = ()
    _inner: aio.PushSubscription

    @property
    def missed(self) -> int:
        """Messages that went missing, as far as it is known."""
        return self._inner.missed

    def __iter__(self) -> Iterator[JetStreamMessage]:  # type: ignore[override]
        return self

    def __next__(self) -> JetStreamMessage:  # type: ignore[override]
        return cast(JetStreamMessage, super().__next__())

    def next(self, timeout: float | None = None) -> JetStreamMessage:  # type: ignore[override]
        """The next message. Raises TimeoutError, or ConnectionClosedError when it is over."""
        return cast(JetStreamMessage, super().next(timeout))

    def next_batch(self, max_messages: int = 1000) -> list[JetStreamMessage]:  # type: ignore[override]
        """What is there, at least one message, at most ``max_messages``; empty when it is over."""
        return cast(list[JetStreamMessage], super().next_batch(max_messages))

    def _wrap(self, messages: Sequence[AioMessage]) -> list[JetStreamMessage]:  # type: ignore[override]
        return [JetStreamMessage._of(self._portal, m._session, m._frame) for m in messages]
