"""``JetStream`` and ``Stream`` for threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...api.streams import StreamInfo
from ...blocking import anywhere, blocking, calling, iterate, iterating, returning, wrapping
from ..jetstream.direct_get import scan
from ..jetstream.stored_message import StreamMessage
from ..jetstream.stream import Stream as AioStream
from ..jetstream_context import JetStream as AioJetStream
from .buckets import KeyValue, ObjectStore
from .consumer import Consumer, OrderedConsumer
from .loop_thread import Facade
from .publisher import AtomicBatch, Publisher

if TYPE_CHECKING:
    from .connection import Connection


class Stream(Facade):
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


class JetStream(Facade):
    """Streams and consumers over one connection. Made by ``connection.jetstream()``.

    Args:
        domain: the JetStream domain to speak to; "" is the server's own.
        prefix: where the API's subjects begin, when an account imports them elsewhere; not together
            with ``domain``.
        timeout: seconds to wait for an answer; None is the connection's ``request_timeout``.
        delivery_timeout: seconds in which what waits for a leader, in a cluster, is sent again before it
            fails; None is the connection's ``delivery_timeout``, two minutes.
    """

    __slots__ = ()
    _inner: AioJetStream

    @property
    def connection(self) -> Connection:
        """The connection this context speaks over."""
        from .connection import Connection

        return Connection(self._thread, self._inner.connection)

    account_info = blocking(AioJetStream.account_info)

    # Publishing

    publish = blocking(AioJetStream.publish)
    publisher = wrapping(Publisher, anywhere(AioJetStream.publisher))
    batch = wrapping(AtomicBatch, calling(AioJetStream.batch))
    increment = blocking(AioJetStream.increment)
    schedule = blocking(AioJetStream.schedule)

    # Streams

    create_stream = returning(Stream, AioJetStream.create_stream)
    update_stream = returning(Stream, AioJetStream.update_stream)
    create_or_update_stream = returning(Stream, AioJetStream.create_or_update_stream)
    stream = returning(Stream, AioJetStream.stream)
    delete_stream = blocking(AioJetStream.delete_stream)
    streams = iterating(AioJetStream.streams)
    stream_names = iterating(AioJetStream.stream_names)

    restore_stream = returning(Stream, AioJetStream.restore_stream)

    # Consumers, without asking for the stream first

    consumer = returning(Consumer, AioJetStream.consumer)
    create_consumer = returning(Consumer, AioJetStream.create_consumer)
    update_consumer = returning(Consumer, AioJetStream.update_consumer)
    create_or_update_consumer = returning(Consumer, AioJetStream.create_or_update_consumer)
    ordered_consumer = returning(OrderedConsumer, AioJetStream.ordered_consumer)
    consumers = iterating(AioJetStream.consumers)
    consumer_names = iterating(AioJetStream.consumer_names)
    delete_consumer = blocking(AioJetStream.delete_consumer)

    # Key-values

    key_value = returning(KeyValue, AioJetStream.key_value)
    create_key_value = returning(KeyValue, AioJetStream.create_key_value)
    update_key_value = returning(KeyValue, AioJetStream.update_key_value)
    create_or_update_key_value = returning(KeyValue, AioJetStream.create_or_update_key_value)
    delete_key_value = blocking(AioJetStream.delete_key_value)
    key_values = iterating(AioJetStream.key_values)
    key_value_statuses = iterating(AioJetStream.key_value_statuses)

    # Objects

    object_store = returning(ObjectStore, AioJetStream.object_store)
    create_object_store = returning(ObjectStore, AioJetStream.create_object_store)
    update_object_store = returning(ObjectStore, AioJetStream.update_object_store)
    create_or_update_object_store = returning(
        ObjectStore, AioJetStream.create_or_update_object_store
    )
    delete_object_store = blocking(AioJetStream.delete_object_store)
    object_stores = iterating(AioJetStream.object_stores)
    object_store_statuses = iterating(AioJetStream.object_store_statuses)
