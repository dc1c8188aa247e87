"""Streams in the making: all of a restore becomes a stream at once, or nothing of it stays.

Before its first message is stored the journal notes that the stream is being restored. The note is taken
back by the flush that journals the stream. A start that finds it removes what there is of the stream and of
its consumers, so a crash at any time leaves all or nothing. Messages are durable before the stream is
journaled, and consumers are journaled before it.

``Finishing`` makes the consumers, a slice in each turn of the loop, and then shows all of it. Until then
nobody sees the stream or a consumer. Pull consumers, of which there may be many thousands, are made and
journaled before that; push consumers deliver to whoever listens, so they are made at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from .....api.base import DocumentError, from_wire
from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....api.times import parse_time
from .....errors import SnapshotFormatError, StoreError
from ...ports import Bus, StreamStore
from ..api.consumers import check_count, check_work_queue
from ..api.streams import stream_info
from ..config.consumer import check_consumer, check_consumer_name, with_consumer_defaults
from ..config.options import Refused
from ..consumer.consumer import Consumer
from ..context import Context
from ..stream.stream import Stream
from .registry import CONSUMER, RESTORING, STATE

if TYPE_CHECKING:
    from .....snapshots.contents import ConsumerContent
    from ..api.receiving import Finished, Receiving, RestoredConsumer
    from .registry import Registry


_SLICE_NS: Final = 1_000_000

Shown = Callable[[Stream | None, Exception | None], None]


class Finishing:
    """Makes one stream and its consumers of what was received."""

    def __init__(
        self, context: Context, registry: Registry, receiving: Receiving, store: StreamStore
    ) -> None:
        self._context = context
        self._registry = registry
        self._config = receiving.config
        self._store = store
        self._created_ns = _time(receiving.created) or context.clock.now_ns()
        self._stream = Stream(
            context, receiving.config, self._created_ns, store, registry.stream_marks
        )
        self._waiting = deque(receiving.consumers.values())
        self._made: list[Consumer] = []
        self._pushes: list[RestoredConsumer] = []

    def start(self, check: Callable[[], None], shown: Shown) -> None:
        """Begin. ``check`` may refuse at the end; ``shown`` is told of the stream, or what went wrong."""
        self._check, self._shown = check, shown
        self.turn()

    def turn(self) -> None:
        """One slice."""
        now_ns = self._context.clock.monotonic_ns
        ends_ns = now_ns() + _SLICE_NS
        try:
            while self._waiting:
                self._take(self._waiting.popleft())
                if now_ns() >= ends_ns:
                    self._context.barrier.turns.ask(self)
                    return
            self._show()
        except (StoreError, SnapshotFormatError, Refused) as error:
            self._drop()
            self._shown(None, error)
        else:
            self._shown(self._stream, None)

    def _take(self, restored: RestoredConsumer) -> None:
        if restored.config.deliver_subject:
            self._pushes.append(restored)
        else:
            self._make(restored)

    def _make(self, restored: RestoredConsumer) -> None:
        content, config = restored
        created_ns = _time(content.created) or self._created_ns
        consumer = self._registry.make_consumer(self._stream, content.name, config, created_ns)
        self._made.append(consumer)
        consumer.restore_backup(content.state)
        self._registry.journal_consumer(consumer)

    def _show(self) -> None:
        """All of it at once."""
        self._check()
        for restored in self._pushes:
            self._make(restored)
        del self._registry.making[self._config.name]
        self._registry.take_in(self._stream)
        for consumer in self._made:
            self._registry.take_in_consumer(self._stream, consumer)
        self._stream.open()

    def _drop(self) -> None:
        """Drop the restored stream, of which nobody knew yet."""
        meta = self._context.storage.meta
        for consumer in self._made:
            consumer.close()
            if consumer.journaled and self._context.storage.failed is None:
                meta.delete(CONSUMER + consumer.key)
                meta.delete(STATE + consumer.key)
        self._stream.close()


def _time(text: str) -> int:
    """Nanoseconds since the epoch; 0 for none."""
    return max(parse_time(text), 0) if text else 0


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
            context.barrier.paced.count(directory=True)
        self._registry.making[config.name] = (config, store)
        context.barrier.want()
        return store

    def checked_consumer(
        self, config: StreamConfig, content: ConsumerContent, before: Mapping[str, RestoredConsumer]
    ) -> RestoredConsumer:
        """A consumer that can be made beside those before it. Raises Refused, SnapshotFormatError."""
        from ..api.receiving import RestoredConsumer
        from ..consumer.journal import check_backup

        if content.name in before:
            raise SnapshotFormatError(f"consumer {content.name!r} is there twice")
        consumer = RestoredConsumer(content, self._config_of(config, content))
        check_backup(content.state, content.name)
        check_count(config, self._context.options, len(before))
        check_work_queue(config, consumer.config, (each.config for each in before.values()))
        return consumer

    def finish(self, receiving: Receiving, check: Callable[[], None], then: Finished) -> None:
        """Make it a stream, with its consumers; ``then`` when that is durable, or when it failed."""

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
