"""What a session knows of those that work over it, and what they count."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """What works over a connection and must know when it goes and comes back."""

    def connection_lost(self) -> None: ...

    def connection_restored(self) -> None: ...

    def connection_closed(self, reason: Exception) -> None: ...


class Subscriber(Protocol):
    """A subscription, as its connection knows it: counted, drained and ended."""

    @property
    def pending_messages(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    async def _drain_for(self, caller: object) -> None: ...

    def end(self) -> None: ...


class PublisherNumbers(Protocol):
    """A windowed publisher, as the connection's statistics know it."""

    sent: int
    acked: int
    failed: int

    @property
    def in_flight(self) -> int: ...


class Counts:
    """What the parts of a session count themselves, a batch at a time."""

    __slots__ = (
        "acked", "answers", "dropped", "errors", "failed", "in_bytes", "in_messages", "published", "pulls",
        "sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.in_messages = 0
        self.in_bytes = 0  # of links that are gone
        self.published = 0  # messages that went out in batches
        self.pulls = 0
        self.answers = 0
        self.dropped = 0
        self.errors = 0
        self.sent = self.acked = self.failed = 0  # of publishers that are closed
