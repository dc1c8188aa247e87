"""Streams in the making: what a restore needs of the engine's registry."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from .....api.streams import StreamConfig, StreamInfo
from .....snapshots.contents import ConsumerContent
from ...ports.storage import StreamStore
from .receiving import Receiving

Finished = Callable[[StreamInfo | None, Exception | None], None]
"""Told of a restored stream that is durable; or what went wrong."""


class RestoredStreams(Protocol):
    """See ``engine.restores.Restores``."""

    @property
    def names(self) -> Collection[str]:
        """The streams in the making."""

    def announce(self, config: StreamConfig, then: Callable[[Exception | None], None]) -> None:
        """Have the disk know that a restore begins, so that a crash leaves nothing of it."""

    def open(self, config: StreamConfig) -> StreamStore:
        """A place for its messages. Raises StoreError, Refused."""

    def check_consumer(self, config: StreamConfig, content: ConsumerContent) -> None:
        """Whether such a consumer can be made. Raises Refused, SnapshotFormatError."""

    def finish(self, receiving: Receiving, then: Finished) -> None:
        """Make it a stream, with its consumers; ``then`` when that is durable. Raises Refused, StoreError."""

    def abandon(self, name: str) -> None:
        """Remove what there is of it."""
