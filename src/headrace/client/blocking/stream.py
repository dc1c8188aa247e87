"""``Stream`` for threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...api.streams import StreamInfo
from ..jetstream.direct_get import scan
from ..jetstream.stored_message import StreamMessage
from ..jetstream.stream import Stream as AioStream
from .consumer import Consumer
from .loop_thread import iterate
from .methods import Blocking, blocking, iterating, returning
from .ordered import OrderedConsumer


class Stream(Blocking):
    """One stream. Made by ``js.stream(name)`` and ``js.create_stream(…)``.

    Attributes:
        name: its name.
        cached_info: what the server said last; None if it was never asked.
        changes: what ``create_or_update_stream`` has changed of the stream that was there: each setting, with
            its values before and after.
    """

    __slots__ = ()
    _inner: AioStream

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    @property
    def cached_info(self) -> StreamInfo | None:
        """What the server said last; None if it was never asked."""
        return self._inner.cached_info

    @property
    def changes(self) -> Mapping[str, tuple[object, object]]:
        """What ``create_or_update_stream`` has changed of the stream that was there."""
        return self._inner.changes

    # The stream itself

    info = blocking(AioStream.info)
    update = blocking(AioStream.update)
    delete = blocking(AioStream.delete)
    purge = blocking(AioStream.purge)
    backup = blocking(AioStream.backup)

    # Messages

    get_message = blocking(AioStream.get_message)
    get_last_message = blocking(AioStream.get_last_message)
    get_next_message = blocking(AioStream.get_next_message)
    get_batch = blocking(AioStream.get_batch)
    get_last_messages = blocking(AioStream.get_last_messages)
    counter = blocking(AioStream.counter)
    delete_message = blocking(AioStream.delete_message)

    def scan(self, *, subject: str = "", first: int = 1, last: int = 0) -> Iterator[StreamMessage]:
        """Read the stream from sequence ``first`` to ``last``, or to its end, without a consumer.

        ``for message in stream.scan(subject="orders.>")``; ``subject`` as for ``get_batch``, which
        see for the errors. Up to 10,000 messages or 8 MiB are asked for at a time.
        """
        lists = scan(self._inner._api, self._inner.name, subject, max(1, first), last)
        for messages in iterate(
            self._thread, lists
        ):  # those of one answer cross the threads in one go
            yield from messages

    # Consumers

    create_consumer = returning(Consumer, AioStream.create_consumer)
    update_consumer = returning(Consumer, AioStream.update_consumer)
    create_or_update_consumer = returning(Consumer, AioStream.create_or_update_consumer)
    consumer = returning(Consumer, AioStream.consumer)
    ordered_consumer = returning(OrderedConsumer, AioStream.ordered_consumer)
    delete_consumer = blocking(AioStream.delete_consumer)
    consumers = iterating(AioStream.consumers)
    consumer_names = iterating(AioStream.consumer_names)
