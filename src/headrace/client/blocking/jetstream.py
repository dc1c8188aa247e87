"""The blocking JetStream context and its streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...api.consumers import ConsumerConfig, ConsumerInfo
from ...api.streams import StreamConfig, StreamInfo
from .. import jetstream_context as aio
from ..jetstream import stream as aio_stream
from ..jetstream.direct_get import scan
from ..jetstream.stored_message import StreamMessage
from ..publish import atomic_batch as aio_batch
from ..publish.publisher import PublishFailure
from .batch import AtomicBatch
from .buckets import Buckets
from .consumer import Consumer
from .ordered import OrderedConsumer
from .portal import Blocking, blocking, iterate
from .publisher import Publisher

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["JetStream", "Stream"]


class Stream(Blocking):
    """One stream. The blocking twin of ``headrace.Stream``."""

    __slots__ = ()
    _inner: aio_stream.Stream

    @property
    def name(self) -> str:
        """Its name."""
        return self._inner.name

    @property
    def cached_info(self) -> StreamInfo | None:
        """What the server said last; None if it was never asked."""
        return self._inner.cached_info

    info = blocking(aio_stream.Stream.info)
    update = blocking(aio_stream.Stream.update)
    delete = blocking(aio_stream.Stream.delete)
    purge = blocking(aio_stream.Stream.purge)
    get_message = blocking(aio_stream.Stream.get_message)
    get_last_message = blocking(aio_stream.Stream.get_last_message)
    get_batch = blocking(aio_stream.Stream.get_batch)
    get_last_messages = blocking(aio_stream.Stream.get_last_messages)
    get_next_message = blocking(aio_stream.Stream.get_next_message)
    counter = blocking(aio_stream.Stream.counter)
    delete_message = blocking(aio_stream.Stream.delete_message)
    delete_consumer = blocking(aio_stream.Stream.delete_consumer)

    def scan(self, *, subject: str = "", first: int = 1, last: int = 0) -> Iterator[StreamMessage]:
        """Read the stream without a consumer; see ``headrace.Stream.scan``."""
        inner = self._inner
        lists = scan(inner._api, inner.name, subject, max(1, first), last)
        for messages in iterate(self._portal, lists):
            yield from messages

    def create_consumer(self, config: ConsumerConfig | None = None, /, **values: Any) -> Consumer:
        """As ``headrace.Stream.create_consumer``."""
        return Consumer(
            self._portal, self._portal.run(self._inner.create_consumer(config, **values))
        )

    def update_consumer(self, config: ConsumerConfig | None = None, /, **values: Any) -> Consumer:
        """As ``headrace.Stream.update_consumer``."""
        return Consumer(
            self._portal, self._portal.run(self._inner.update_consumer(config, **values))
        )

    def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """As ``headrace.Stream.create_or_update_consumer``."""
        return Consumer(
            self._portal, self._portal.run(self._inner.create_or_update_consumer(config, **values))
        )

    def ordered_consumer(
        self, config: ConsumerConfig | None = None, /, **values: Any
    ) -> OrderedConsumer:
        """As ``headrace.Stream.ordered_consumer``."""
        call = self._inner.ordered_consumer(config, **values)
        return OrderedConsumer(self._portal, self._portal.run(call))

    def consumer(self, name: str) -> Consumer:
        """An existing consumer. Raises JetStreamApiError (10014) if there is none of this name."""
        return Consumer(self._portal, self._portal.run(self._inner.consumer(name)))

    def consumers(self) -> Iterator[ConsumerInfo]:
        """What the server says of each consumer."""
        return iterate(self._portal, self._inner.consumers())

    def consumer_names(self) -> Iterator[str]:
        """The name of each consumer."""
        return iterate(self._portal, self._inner.consumer_names())


class JetStream(Buckets):
    """Streams and consumers over one connection. The blocking twin of ``headrace.JetStream``."""

    __slots__ = ()
    _inner: aio.JetStream

    @property
    def connection(self) -> Connection:
        """The connection this context speaks over."""
        from .connection import Connection

        return Connection(self._portal, self._inner.connection)

    account_info = blocking(aio.JetStream.account_info)
    publish = blocking(aio.JetStream.publish)
    increment = blocking(aio.JetStream.increment)
    schedule = blocking(aio.JetStream.schedule)
    delete_stream = blocking(aio.JetStream.delete_stream)
    delete_consumer = blocking(aio.JetStream.delete_consumer)

    def publisher(
        self,
        window: int = 16_000,
        *,
        window_bytes: int = 64 * 1024 * 1024,
        ack_timeout: float = 10.0,
        delivery_timeout: float | None = None,
        retries: int = 3,
        deduplicate: bool = False,
        fast: bool = False,
        on_failure: Callable[[PublishFailure], object] | None = None,
    ) -> Publisher:
        """A publisher that keeps many messages in flight: ``with js.publisher() as publisher``.

        The arguments are those of ``headrace.JetStream.publisher``; ``on_failure`` is called on the
        background thread and must not make blocking calls.
        """
        inner = self._inner.publisher(
            window,
            window_bytes=window_bytes,
            ack_timeout=ack_timeout,
            delivery_timeout=delivery_timeout,
            retries=retries,
            deduplicate=deduplicate,
            fast=fast,
            on_failure=on_failure,
        )
        return Publisher(self._portal, inner)

    def batch(self, *, timeout: float | None = None) -> AtomicBatch:
        """Messages stored together or not at all; see ``headrace.JetStream.batch``."""

        async def begin() -> aio_batch.AtomicBatch:
            return self._inner.batch(timeout=timeout)

        return AtomicBatch(self._portal, self._portal.run(begin()))

    def create_stream(self, config: StreamConfig | None = None, /, **values: Any) -> Stream:
        """As ``headrace.JetStream.create_stream``."""
        return Stream(self._portal, self._portal.run(self._inner.create_stream(config, **values)))

    def update_stream(self, config: StreamConfig | None = None, /, **values: Any) -> Stream:
        """As ``headrace.JetStream.update_stream``."""
        return Stream(self._portal, self._portal.run(self._inner.update_stream(config, **values)))

    def create_or_update_stream(
        self, config: StreamConfig | None = None, /, **values: Any
    ) -> Stream:
        """As ``headrace.JetStream.create_or_update_stream``."""
        return Stream(
            self._portal, self._portal.run(self._inner.create_or_update_stream(config, **values))
        )

    def stream(self, name: str) -> Stream:
        """An existing stream. Raises JetStreamApiError (10059) if there is none of this name."""
        return Stream(self._portal, self._portal.run(self._inner.stream(name)))

    def streams(self, *, subject: str = "") -> Iterator[StreamInfo]:
        """What the server says of each stream, or of those that have ``subject``."""
        return iterate(self._portal, self._inner.streams(subject=subject))

    def stream_names(self, *, subject: str = "") -> Iterator[str]:
        """The name of each stream, or of those that have ``subject``."""
        return iterate(self._portal, self._inner.stream_names(subject=subject))

    def consumer(self, stream: str, name: str) -> Consumer:
        """An existing consumer. Raises JetStreamApiError (10014, 10059) if there is none."""
        return Consumer(self._portal, self._portal.run(self._inner.consumer(stream, name)))

    def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """As ``Stream.create_consumer``."""
        return Consumer(
            self._portal, self._portal.run(self._inner.create_consumer(stream, config, **values))
        )

    def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """As ``Stream.update_consumer``."""
        return Consumer(
            self._portal, self._portal.run(self._inner.update_consumer(stream, config, **values))
        )

    def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
    ) -> Consumer:
        """As ``Stream.create_or_update_consumer``."""
        call = self._inner.create_or_update_consumer(stream, config, **values)
        return Consumer(self._portal, self._portal.run(call))

    def ordered_consumer(
        self, stream: str, config: ConsumerConfig | None = None, /, **values: Any
    ) -> OrderedConsumer:
        """As ``Stream.ordered_consumer``."""
        call = self._inner.ordered_consumer(stream, config, **values)
        return OrderedConsumer(self._portal, self._portal.run(call))

    def consumers(self, stream: str) -> Iterator[ConsumerInfo]:
        """As ``Stream.consumers``."""
        return iterate(self._portal, self._inner.consumers(stream))

    def consumer_names(self, stream: str) -> Iterator[str]:
        """As ``Stream.consumer_names``."""
        return iterate(self._portal, self._inner.consumer_names(stream))
