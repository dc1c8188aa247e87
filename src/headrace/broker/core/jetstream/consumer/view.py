"""A consumer, as its parts see it: who it is, what they share, and what they ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .....api.consumers import ConsumerConfig
from ..context import Context
from ..ports import Reader
from ..tick.retry import Unread
from .backlog import Backlog
from .delivery_state import DeliveryState, Entry
from .timer import ConsumerTimer, Inactivity

if TYPE_CHECKING:
    from ..stream.stream import Stream


class ConsumerView(Reader, Protocol):
    """What the rooms ``acks``, ``pull`` and ``push`` know of the ``consumer.Consumer`` they are parts of."""

    context: Context
    stream: Stream
    name: str
    config: ConsumerConfig
    state: DeliveryState
    backlog: Backlog
    timer: ConsumerTimer
    inactivity: Inactivity
    unread: Unread

    def wake(self) -> None: ...
    def touch(self) -> None: ...
    def report_later(self) -> None: ...
    def forgot(self, entries: Sequence[Entry]) -> None: ...
    def deliver_at_once(self) -> None: ...
