"""``JetStream`` for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jetstream_context import JetStream as AioJetStream
from .batch import AtomicBatch
from .buckets import KeyValue, ObjectStore
from .consumer import Consumer
from .methods import Blocking, anywhere, blocking, calling, iterating, returning, wrapping
from .ordered import OrderedConsumer
from .publisher import Publisher
from .stream import Stream

if TYPE_CHECKING:
    from .connection import Connection


class JetStream(Blocking):
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
