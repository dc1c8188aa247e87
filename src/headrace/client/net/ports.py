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


class Resident(Protocol):
    """What works over a connection by several calls, and has an orderly way to leave it."""

    def _works_with(self, observer: Observer) -> bool:
        """Whether it ends ``observer`` itself."""

    def _begin_to_leave(
        self, caller: object, reason: Exception | None, *, is_cut_off: bool
    ) -> None:
        """Begin nothing more, wait for what is in hand, and give back the rest.

        Args:
            caller: the task, or the number of the thread, that wants it.
            reason: what it ends with.
            is_cut_off: there is no link, so nothing can be given back.
        """

    async def _until_left(self, caller: object) -> None:
        """Until that is done; not if it is ``caller`` who has a message. Cancelled, it cancels what is in
        hand."""


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
