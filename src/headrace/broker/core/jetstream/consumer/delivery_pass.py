"""A delivery pass: what one consumer can deliver now meets whoever wants it.

Redeliveries go first, then new messages, read from the store in batches. A pass is bounded, so that one
consumer cannot keep the others, or the disk, waiting. Who receives is for ``Recipients`` to say: the
waiting requests of a pull consumer, or the listeners on a deliver subject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Protocol

from .....message import StoredRow
from .sender import Sender
from .view import ConsumerView

_PASS_BYTES: Final = 1024 * 1024
_EXPIRED: Final = 256  # so many are looked at together


class PassEnd(Enum):
    """Why a pass ended, and so what wakes the consumer again."""

    NO_REQUESTS = "a pull"
    STALLED = "an ack"
    EXHAUSTED = "new messages"
    BLOCKED = "room in a receiver's output"
    HELD = "an answer of the receiver, or time"
    BUDGET = "the next tick"
    UNREADABLE = "time"


class Recipients(Protocol):
    """Who receives the messages of one consumer."""

    def begin(self) -> PassEnd | None:
        """A pass begins; why nothing can go out, if that is clear already."""

    def obstacle(self) -> PassEnd | None:
        """What keeps the next message from going out, if anything."""

    def wanted(self) -> int:
        """How many new messages to read; 0 when nobody there can have one now."""

    def hand_out(self, rows: list[StoredRow]) -> PassEnd | None:
        """Send a batch of new messages, or some of it; why the pass ends with that, if it does."""

    def resend(self, row: StoredRow) -> PassEnd | None:
        """Send one message again; why the pass ends with that, if it does."""

    def stopped(self) -> PassEnd:
        """Why nobody could have a message."""

    def end(self) -> None:
        """The pass is over."""


class DeliveryPass:
    """Delivers the messages of one consumer, a bounded pass at a time."""

    def __init__(
        self,
        consumer: ConsumerView,
        sender: Sender,
        recipients: Recipients,
        forget: Callable[[Sequence[int]], None],
    ) -> None:
        """``forget`` is told of messages to redeliver that are not in the stream any more."""
        self._consumer = consumer
        self._sender = sender
        self._recipients = recipients
        self._forget = forget

    @property
    def delivered(self) -> bool:
        """Whether the last pass delivered anything."""
        return self._sender.delivered

    def deliver(self, now_ns: int) -> PassEnd:
        """Deliver what can be delivered now. Raises StoreReadError when the store cannot read it."""
        self._sender.begin(now_ns)
        recipients = self._recipients
        end = recipients.begin()
        if end is not None:
            return end
        try:
            return self._redeliver() or self._deliver_new()
        finally:
            recipients.end()

    def _redeliver(self) -> PassEnd | None:
        """Serve the redelivery queue; why that stopped, or None when it is empty."""
        state, recipients, sender = self._consumer.state, self._recipients, self._sender
        store = self._consumer.stream.store
        while sequence := state.peek_redelivery():
            message = store.get(sequence)
            if message is None:
                self._forget([sequence])
                continue
            if self._consumer.stream.take_out_expired([message]):
                self._forget([sequence])
                sender.passed_over(1)
                if not sender.left:
                    return PassEnd.BUDGET
                continue
            end = recipients.obstacle()
            if end is None:
                sender.count()
                end = recipients.resend(sender.as_configured([message])[0])
            if end is not None:
                return end
        return None

    def _take_out_more(self) -> None:
        """What follows has probably expired, too: do not find that out one by one."""
        rows = self._consumer.backlog.read(_EXPIRED, _PASS_BYTES)
        if rows and self._consumer.stream.take_out_expired(rows):
            self._sender.passed_over(len(rows))

    def _deliver_new(self) -> PassEnd:
        backlog, recipients, sender = self._consumer.backlog, self._recipients, self._sender
        while True:
            end = recipients.obstacle()
            if end is not None:
                return end
            room = backlog.room()
            if room <= 0:
                return PassEnd.STALLED
            wanted = min(recipients.wanted(), room, sender.left)
            if not wanted:
                return recipients.stopped()
            rows = backlog.read(wanted, _PASS_BYTES)
            if not rows:
                backlog.skip_to(self._consumer.stream.store.durable_seq + 1)
                return PassEnd.EXHAUSTED
            if self._consumer.stream.take_out_expired(rows):
                sender.passed_over(len(rows))
                if not sender.left:
                    return PassEnd.BUDGET
                self._take_out_more()
                continue
            sender.count()
            end = recipients.hand_out(sender.as_configured(rows))
            sender.end_batch()
            if end is not None:
                return end
