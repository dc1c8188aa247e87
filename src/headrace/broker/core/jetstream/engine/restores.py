"""Streams in the making: all of a restore becomes a stream at once, or nothing of it stays.

Before its first message is stored the journal notes that the stream is being restored. The note is taken
back by the flush that journals the stream and its consumers. A start that finds it removes what there is
of the stream, so a crash at any time leaves all or nothing. Messages are durable before the stream is
journaled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from .....api.base import DocumentError, from_wire
from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....api.times import parse_time
from .....errors import SnapshotFormatError, StoreError
from ...ports.bus import Bus
from ...ports.storage import StreamStore
from ..api.streams import stream_info
from ..config.consumer import check_consumer, check_consumer_name, with_consumer_defaults
from ..config.refused import Refused
from ..context import Context
from ..stream.stream import Stream
from .lost import RESTORING

if TYPE_CHECKING:
    from .....snapshots.contents import ConsumerContent
    from ..api.receiving import Receiving
    from ..api.restoring import Finished
    from .registry import Registry


class _Flight:
    """What waits for the next flush; see ``tick.flush_barrier.Awaiting``."""

    def __init__(self, then: Callable[[Exception | None], None]) -> None:
        self._then = then

    def begin_flush(self) -> Callable[[Bus, Exception | None], None]:
        return lambda _bus, error: self._then(error)


class Restores:
    """The restores under way of one engine, as far as they concern its storage."""

    def __init__(self, context: Context, registry: Registry) -> None:
        self._context = context
        self._registry = registry

    @property
    def names(self) -> Collection[str]:
        """The streams in the making."""
        return self._registry.making.keys()

    def announce(self, config: StreamConfig, then: Callable[[Exception | None], None]) -> None:
        """Have the disk know that a restore begins, so that a crash leaves nothing of it."""
        context, registry = self._context, self._registry
        try:
            registry.lost.check(config.name)
        except StoreError as error:
            raise Refused(Errors.STREAM_RESTORE, err=error) from error
        if config.storage == "file":
            context.storage.meta.put(RESTORING + config.name, b"{}")
        registry.making[config.name] = (config, None)

        def told(error: Exception | None) -> None:
            if error is not None:
                self.abandon(config.name)
            then(error)

        context.barrier.want(_Flight(told))

    def open(self, config: StreamConfig) -> StreamStore:
        """A place for its messages. Raises StoreError, Refused."""
        context = self._context
        memory = config.storage == "memory"
        store = context.storage.create_stream(config.name, memory=memory)
        if not memory:
            context.barrier.paced.count()
        self._registry.making[config.name] = (config, store)
        context.barrier.want()
        return store

    def check_consumer(self, config: StreamConfig, content: ConsumerContent) -> None:
        """Whether such a consumer can be made. Raises Refused, SnapshotFormatError."""
        from ..consumer import transfer

        self._config_of(config, content)
        transfer.check(content.state, content.name)

    def finish(self, receiving: Receiving, then: Finished) -> None:
        """Make it a stream, with its consumers; ``then`` when that is durable.

        Raises Refused, StoreError, SnapshotFormatError.
        """
        from ..consumer import transfer

        context, registry, config = self._context, self._registry, receiving.config
        store = registry.making[config.name][1]
        assert store is not None  # it is open
        created_ns = _time(receiving.created) or context.clock.now_ns()
        configs = [self._config_of(config, content) for content in receiving.consumers]
        stream = Stream(context, config, created_ns, store, registry.stream_marks)
        del registry.making[config.name]
        registry.take_in(stream)
        try:
            for content, consumer_config in zip(receiving.consumers, configs, strict=True):
                consumer = registry.take_in_consumer(
                    stream, content.name, consumer_config, _time(content.created) or created_ns
                )
                registry.admit(consumer, transfer.snapshot_of(consumer, content.state, store))
        except (StoreError, SnapshotFormatError):
            registry.delete_stream(stream)
            self._forget(config)
            raise
        stream.open()
        self._forget(config)
        context.advisories.stream(config.name, "create")

        def told(error: Exception | None) -> None:
            if error is not None:
                self._take_back(stream)
                then(None, error)
            else:
                then(stream_info(stream, context), None)

        context.barrier.want(_Flight(told))

    def abandon(self, name: str) -> None:
        """Remove what there is of it."""
        storage = self._context.storage
        config, store = self._registry.making.pop(name, (None, None))
        if config is None or storage.failed is not None:
            return  # a start will find the note
        if store is not None and storage.holds(name, store):
            storage.delete_stream(name)
        self._forget(config)
        self._context.barrier.want()

    def _forget(self, config: StreamConfig) -> None:
        if config.storage == "file":
            self._context.storage.meta.delete(RESTORING + config.name)

    def _take_back(self, stream: Stream) -> None:
        """The journal does not say that there is such a stream: there is none."""
        if self._context.storage.failed is None and stream.name in self._registry.streams:
            self._registry.delete_stream(stream)

    def _config_of(self, stream: StreamConfig, content: ConsumerContent) -> ConsumerConfig:
        options = self._context.options
        try:
            config = from_wire(dict(content.config), ConsumerConfig)
        except DocumentError as error:
            raise SnapshotFormatError(f"consumer {content.name!r}: {error}") from None
        check_consumer_name(content.name)
        if config.durable_name and config.durable_name != content.name:
            raise SnapshotFormatError(f"consumer {content.name!r} calls itself otherwise")
        config = msgspec.structs.replace(config, name=content.name)
        config = with_consumer_defaults(config, stream, options)
        check_consumer(config, stream, options)
        return config


def _time(text: str) -> int:
    """Nanoseconds since the epoch; 0 for none."""
    return max(parse_time(text), 0) if text else 0
