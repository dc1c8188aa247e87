"""The end of a restore: its consumers are made, a slice in each turn of the loop, and then all is shown.

Until then nobody sees the stream or a consumer. Pull consumers, of which there may be many thousands, are
made and journaled before that; push consumers deliver to whoever listens, so they are made at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from .....api.times import parse_time
from .....errors import SnapshotFormatError, StoreError
from ...ports.storage import StreamStore
from ..config.refused import Refused
from ..consumer import transfer
from ..consumer.consumer import Consumer
from ..context import Context
from ..stream.stream import Stream
from .lost import CONSUMER, STATE

if TYPE_CHECKING:
    from ..api.receiving import Receiving
    from ..api.restoring import RestoredConsumer
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
        consumer.restore(transfer.snapshot_of(consumer, content.state, self._store), [])
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
