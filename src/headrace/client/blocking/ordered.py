"""The blocking ordered consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

from ...api.consumers import ConsumerInfo
from ..jetstream import ordered as aio
from ..jetstream.message import Batch as AioBatch
from .messages import Batch, JetStreamMessage
from .portal import Blocking, Portal, blocking

__all__ = ["OrderedConsumer", "OrderedConsumption"]

BATCH_MESSAGES = 100  # taken from the buffer in one go when iterating


class OrderedConsumption(Blocking):
    """Messages of an ordered consumer as they come, each once and in order."""

    __slots__ = ("_messages",)
    _inner: aio.OrderedConsumption

    def __init__(self, portal: Portal, inner: aio.OrderedConsumption) -> None:
        super().__init__(portal, inner)
        self._messages: deque[JetStreamMessage] = deque()

    def __iter__(self) -> Iterator[JetStreamMessage]:
        return self

    def __next__(self) -> JetStreamMessage:
        """Raises JetStreamApiError when the stream is gone, ConnectionClosedError when closed."""
        if not self._messages:
            self._messages.extend(self._take(BATCH_MESSAGES))
        if not self._messages:
            raise StopIteration
        return self._messages.popleft()

    def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """What has come, at least one message, and at most ``max_messages`` if given; empty at the end."""
        if self._messages:
            count = min(max_messages or len(self._messages), len(self._messages))
            return [self._messages.popleft() for _ in range(count)]
        return self._take(max_messages)

    def _take(self, max_messages: int) -> list[JetStreamMessage]:
        taken = self._portal.run(self._inner.next_batch(max_messages))
        return [JetStreamMessage._of(self._portal, m._session, m._frame) for m in taken]

    stop = blocking(aio.OrderedConsumption.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class OrderedConsumer(Blocking):
    """Reads a stream in order, each message once. The blocking twin of ``headrace.OrderedConsumer``."""

    __slots__ = ()
    _inner: aio.OrderedConsumer

    @property
    def stream_name(self) -> str:
        """The stream it reads."""
        return self._inner.stream_name

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the last message taken, or 0."""
        return self._inner.last_sequence

    @property
    def resets(self) -> int:
        """How often the consumer behind it was replaced."""
        return self._inner.resets

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """What the server said last of the consumer that stands behind it now, if there is one."""
        return self._inner.cached_info

    info = blocking(aio.OrderedConsumer.info)
    delete = blocking(aio.OrderedConsumer.delete)

    def fetch(
        self,
        max_messages: int = 100,
        *,
        max_wait: float = 5.0,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = False,
    ) -> Batch:
        """The next messages; see ``headrace.OrderedConsumer.fetch``."""
        return self._batch(
            self._inner.fetch(
                max_messages, max_wait=max_wait, heartbeat=heartbeat, no_wait=no_wait, eager=eager
            )
        )

    def fetch_bytes(
        self,
        max_bytes: int,
        *,
        max_wait: float = 5.0,
        heartbeat: float | None = None,
        no_wait: bool = False,
        eager: bool = False,
    ) -> Batch:
        """As ``fetch``, up to ``max_bytes``; see ``headrace.OrderedConsumer.fetch_bytes``."""
        return self._batch(
            self._inner.fetch_bytes(
                max_bytes, max_wait=max_wait, heartbeat=heartbeat, no_wait=no_wait, eager=eager
            )
        )

    def _batch(self, call: Coroutine[Any, Any, AioBatch]) -> Batch:
        batch = self._portal.run(call)
        return Batch(self._portal, batch._session, batch._frames, batch.status, batch.error)

    def next(self, max_wait: float = 5.0) -> JetStreamMessage:
        """The next message. Raises TimeoutError if none came in ``max_wait`` seconds."""
        message = self._portal.run(self._inner.next(max_wait))
        return JetStreamMessage._of(self._portal, message._session, message._frame)

    def consume(
        self,
        *,
        max_messages: int = 0,
        max_bytes: int = 0,
        on_error: Callable[[Exception], object] | None = None,
    ) -> OrderedConsumption:
        """Messages as they come: ``with ordered.consume() as messages: for message in messages``."""

        async def begin() -> aio.OrderedConsumption:
            return self._inner.consume(
                max_messages=max_messages, max_bytes=max_bytes, on_error=on_error
            )

        return OrderedConsumption(self._portal, self._portal.run(begin()))
