"""Streams in the making: what a restore needs of the engine's registry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .....api.consumers import ConsumerConfig
from .....api.streams import StreamConfig, StreamInfo
from .....snapshots.contents import ConsumerContent
from ...ports.storage import StreamStore

if TYPE_CHECKING:
    from .receiving import Receiving

Finished = Callable[[StreamInfo | None, Exception | None], None]
"""Told of a restored stream that is durable; or what went wrong."""


class RestoredConsumer(NamedTuple):
    """A consumer of a backup; ``config`` is checked."""

    content: ConsumerContent
    config: ConsumerConfig


class RestoredStreams(Protocol):
    """See ``engine.restores.Restores``."""

    @property
    def names(self) -> Collection[str]:
        """The streams in the making."""

    def announce(self, config: StreamConfig, then: Callable[[Exception | None], None]) -> None:
        """Have the disk know that a restore begins, so that a crash leaves nothing of it."""

    def open(self, config: StreamConfig) -> StreamStore:
        """A place for its messages. Raises StoreError, Refused."""

    def checked_consumer(
        self, config: StreamConfig, content: ConsumerContent, before: Mapping[str, RestoredConsumer]
    ) -> RestoredConsumer:
        """A consumer that can be made beside those before it. Raises Refused, SnapshotFormatError."""

    def finish(self, receiving: Receiving, check: Callable[[], None], then: Finished) -> None:
        """Make it a stream, with its consumers; ``then`` when that is durable, or when it failed.

        That takes several turns of the loop. ``check`` is called in the last one, and may raise Refused.
        """

    def abandon(self, name: str) -> None:
        """Remove what there is of it."""
