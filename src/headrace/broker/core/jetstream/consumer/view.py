"""A consumer, as its parts see it: who it is, what they share, and what they ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .....api.consumers import ConsumerConfig
from ..context import Context
from ..ports import StreamView
from ..tick.retry import Unread
from .backlog import Backlog
from .delivery_state import DeliveryState, Entry
from .timer import ConsumerTimer, Inactivity

__all__ = ["ConsumerView"]


class ConsumerView(Protocol):
    """What the rooms ``acks``, ``pull`` and ``push`` know of the consumer they are parts of."""

    context: Context
    stream: StreamView
    name: str
    config: ConsumerConfig
    state: DeliveryState
    backlog: Backlog
    timer: ConsumerTimer
    inactivity: Inactivity
    unread: Unread
    """Delivery waits here while the store cannot read what comes next."""

    def wake(self) -> None:
        """There may be something to deliver: ask for a delivery pass."""
        ...

    def touch(self) -> None:
        """The delivery state changed: journal it with the next flush."""
        ...

    def report_later(self) -> None:
        """Let the stream's retention know, at the end of the tick, what is finished."""
        ...

    def forgot(self, entries: Sequence[Entry]) -> None:
        """Deliveries are over because their messages left the stream, unless the flush fails."""
        ...

    def deliver_at_once(self) -> None:
        """Deliver now, unless that was done in this tick already and nothing has changed."""
        ...
