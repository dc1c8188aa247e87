"""Streams in the making: all of a restore becomes a stream at once, or nothing of it stays.

Before its first message is stored the journal notes that the stream is being restored. The note is taken
back by the flush that journals the stream. A start that finds it removes what there is of the stream and of
its consumers, so a crash at any time leaves all or nothing. Messages are durable before the stream is
journaled, and consumers are journaled before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from .....api.base import DocumentError, from_wire
from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....errors import SnapshotFormatError, StoreError
from ...ports.bus import Bus
from ...ports.storage import StreamStore
from ..api.consumer_rules import check_count, check_work_queue
from ..api.streams import stream_info
from ..config.consumer import check_consumer, check_consumer_name, with_consumer_defaults
from ..config.refused import Refused
from ..context import Context
from ..stream.stream import Stream
from .lost import RESTORING

if TYPE_CHECKING:
    from .....snapshots.contents import ConsumerContent
    from ..api.receiving import Receiving
    from ..api.restoring import Finished, RestoredConsumer
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

    def checked_consumer(
        self, config: StreamConfig, content: ConsumerContent, before: Mapping[str, RestoredConsumer]
    ) -> RestoredConsumer:
        """A consumer that can be made beside those before it. Raises Refused, SnapshotFormatError."""
        from ..api.restoring import RestoredConsumer
        from ..consumer import transfer

        if content.name in before:
            raise SnapshotFormatError(f"consumer {content.name!r} is there twice")
        consumer = RestoredConsumer(content, self._config_of(config, content))
        transfer.check(content.state, content.name)
        check_count(config, self._context.options, len(before))
        check_work_queue(config, consumer.config, (each.config for each in before.values()))
        return consumer

    def finish(self, receiving: Receiving, check: Callable[[], None], then: Finished) -> None:
        """Make it a stream, with its consumers; ``then`` when that is durable, or when it failed."""
        from .restore_end import Finishing

        config, store = self._registry.making[receiving.config.name]
        assert store is not None  # it is open
        finishing = Finishing(self._context, self._registry, receiving, store)

        def shown(stream: Stream | None, error: Exception | None) -> None:
            if stream is None:
                self.abandon(config.name)
                then(None, error)
                return
            self._forget(config)
            self._context.advisories.stream(config.name, "create")
            self._context.barrier.want(_Flight(partial(durable, stream)))

        def durable(stream: Stream, error: Exception | None) -> None:
            if error is not None:
                self._take_back(stream)
                then(None, error)
            else:
                then(stream_info(stream, self._context), None)

        finishing.start(check, shown)

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
