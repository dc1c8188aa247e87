"""``OrderedConsumer`` and ``OrderedConsumption`` for threads."""

from __future__ import annotations

from ...api.consumers import ConsumerInfo
from ..jetstream.calls import place_of_call
from ..jetstream.ordered import OrderedConsumer as AioOrderedConsumer
from ..jetstream.ordered import OrderedConsumption as AioOrderedConsumption
from .consume import JetStreamMessages
from .loop_thread import LoopThread
from .messages import Batch, JetStreamMessage
from .methods import Blocking, blocking, calling, returning, wrapping


class OrderedConsumption(JetStreamMessages):
    """Messages of an ordered consumer as they come, each once and in order.

    Iterating raises JetStreamApiError when the stream is gone, ConnectionClosedError when closed. It ends by
    ``stop``, and when nobody holds it any more, which is a ResourceWarning.
    """

    __slots__ = ()
    _inner: AioOrderedConsumption

    def __init__(self, thread: LoopThread, inner: AioOrderedConsumption) -> None:
        super().__init__(thread, inner)
        inner._place = place_of_call()

    def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """What has come, at least one message, and at most ``max_messages`` if given; empty at the end."""
        return self._next_batch(max_messages)

    stop = blocking(AioOrderedConsumption.stop)


class OrderedConsumer(Blocking):
    """Reads a stream in order, each message once. Made by ``Stream.ordered_consumer``.

    There is nothing to acknowledge. Behind it stands an ephemeral consumer in the server's memory, which
    is replaced by one that starts after the last message seen, when messages were missed, the server
    went silent, the connection was lost, or the consumer is gone. Of a stream that has not that message any
    more, as one that was made again, come those that were stored later. One reader at a time.

    Attributes:
        stream_name: the stream it reads.
        last_sequence: the stream sequence of the last message handed out, or 0.
        resets: how often the consumer behind it was replaced.
    """

    __slots__ = ()
    _inner: AioOrderedConsumer

    @property
    def stream_name(self) -> str:
        """The stream it reads."""
        return self._inner.stream_name

    @property
    def last_sequence(self) -> int:
        """The stream sequence of the last message handed out, or 0."""
        return self._inner.last_sequence

    @property
    def resets(self) -> int:
        """How often the consumer behind it was replaced."""
        return self._inner.resets

    @property
    def cached_info(self) -> ConsumerInfo | None:
        """What the server said last of the consumer that stands behind it now, if there is one."""
        return self._inner.cached_info

    info = blocking(AioOrderedConsumer.info)
    fetch = returning(Batch._of, AioOrderedConsumer.fetch)
    fetch_bytes = returning(Batch._of, AioOrderedConsumer.fetch_bytes)
    next = returning(JetStreamMessage._of, AioOrderedConsumer.next)
    consume = wrapping(OrderedConsumption, calling(AioOrderedConsumer.consume))
    delete = blocking(AioOrderedConsumer.delete)
