"""What streams and their consumers know of each other: neither room imports the other's types."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Protocol

from ....api.streams import StreamConfig
from ....subjects import SubjectFilter
from ..ports import StreamStore

__all__ = ["StreamView"]


class _Waiters(Protocol):
    """Consumers that have had every message so far."""

    def add(self, consumer: Any, filter: SubjectFilter | None, caught_up: int = 0) -> None:
        """Wake a consumer when a message that matches is durable; with no filter, by any flush.

        ``caught_up`` is its next sequence if it has seen everything before that, else 0.
        """
        ...

    def discard(self, consumer: Any) -> None: ...


class _Retention(Protocol):
    """What decides whether an acknowledged message leaves the stream."""

    def acknowledged(self, consumer: Any, sequences: Sequence[int]) -> None:
        """A consumer is done with these. Raises StoreReadError, and then nothing has changed."""
        ...

    def consumers_changed(self) -> None:
        """A consumer has gone, or needs less than it did."""
        ...


class StreamView(Protocol):
    """A stream, as its consumers see it."""

    name: str
    config: StreamConfig
    store: StreamStore
    created_ns: int
    removals: int
    """Counts removals other than by acks and from the head: who counted messages counts anew."""

    @property
    def waiters(self) -> _Waiters: ...

    @property
    def retention(self) -> _Retention: ...

    @property
    def holding(self) -> MutableMapping[Any, None]:
        """Consumers with deliveries that are not acknowledged yet."""
        ...

    @property
    def blocked(self) -> MutableMapping[Any, None]:
        """Consumers that stopped because a receiver has too much unsent output."""
        ...

    def expire(self) -> None:
        """Remove what is too old."""
        ...

    def wake_after_flush(self) -> None:
        """Let the next flush wake the waiters, even if it carries no message."""
        ...
