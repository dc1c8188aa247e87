"""A delivery pass: what one consumer can deliver now meets whoever wants it.

Redeliveries go first, then new messages, read from the store in batches. A pass is bounded, so that one
consumer cannot keep the others, or the disk, waiting. Who receives is for ``Recipients`` to say: the
waiting requests of a pull consumer, or the listeners on a deliver subject.

The ``Sender`` sends the messages to a receiver and records them as delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, Protocol

from .....api.acks import ack_prefix
from .....message import StoredRow
from ...deliveries import Deliveries, Outgoing
from ...net.subscription import send_each
from ...ports import Target
from ...server_headers import with_place
from .delivery_state import DeliveryBatch
from .view import ConsumerView

_PASS_MESSAGES: Final = 1024
_SIZE: Final = b"Nats-Msg-Size: %d\r\n"  # of a message whose payload is left out
_BARE_SIZE: Final = with_place(b"", _SIZE)
_PASS_BYTES: Final = 1024 * 1024
_EXPIRED: Final = 256  # so many are looked at together


class Sender:
    """Sends, and keeps the account of one delivery pass at a time."""

    def __init__(self, consumer: ConsumerView) -> None:
        self._consumer = consumer
        self._state = consumer.state
        prefix = ack_prefix(consumer.stream.name, consumer.name)
        self._first_prefix = prefix + b"1."
        prefix = prefix.replace(b"%", b"%%")
        self._first_reply = prefix + b"1.%d.%d.%d.%d"
        self._reply = prefix + b"%d.%d.%d.%d.%d"
        self._batch: DeliveryBatch | None = None
        self._is_counted = False
        self.now_ns = 0
        """The monotonic time of the pass."""
        self.left = 0
        """How many more messages may go out in the pass."""
        self.pending = 0
        """How many messages are still to be delivered for the first time, once that was counted."""
        self.delivered = False
        """Whether the pass has delivered anything."""

    # -- the account

    def begin(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.left = _PASS_MESSAGES
        self.delivered = False
        self._is_counted = False

    def count(self) -> None:
        """Count what is pending, once per pass and only when there is something to deliver."""
        if not self._is_counted:
            self._is_counted = True
            self.pending = self._consumer.backlog.num_pending()

    def passed_over(self, count: int) -> None:
        """So many were looked at for nothing, as they are gone now."""
        self._is_counted = False
        self.left = max(self.left - count, 0)

    def record(self, rows: list[StoredRow]) -> None:
        """These went out for the first time, in ascending order."""
        count = len(rows)
        if count == 1:
            self.record_one(rows[0])
            return
        batch = self._batch or self._begin_batch()
        self._state.deliver_many(batch, [row[0] for row in rows])
        self._state.delivered_stamp_ns = rows[-1][4]
        self.pending -= count
        self.left -= count
        self.delivered = True

    def record_one(self, row: StoredRow) -> None:
        """``record`` for a single message."""
        self._state.deliver_new(self._batch or self._begin_batch(), row[0])
        self._state.delivered_stamp_ns = row[4]
        self.pending -= 1
        self.left -= 1
        self.delivered = True

    def _begin_batch(self) -> DeliveryBatch:
        self._batch = self._state.begin_batch(self.now_ns)
        return self._batch

    def end_batch(self) -> None:
        """What was read together has been handed out."""
        self._batch = None
        self._consumer.backlog.advance(self.pending)

    # -- messages

    def as_configured(self, rows: list[StoredRow]) -> list[StoredRow]:
        """Messages as the consumer's configuration wants them delivered."""
        if not self._consumer.config.headers_only:
            return rows
        bare = {size: _BARE_SIZE % size for size in {len(row[3]) for row in rows}}
        return [
            (
                sequence,
                subject,
                with_place(headers, _SIZE % len(payload), _SIZE) if headers else bare[len(payload)],
                b"",
                at,
            )
            for sequence, subject, headers, payload, at in rows
        ]

    def send_stored(self, target: Target, rows: list[StoredRow]) -> None:
        """Send messages as they are, in one go."""
        if len(rows) == 1:  # as where each message waits for the ack of the one before
            [row] = rows
            target.send(row[1], self.reply_of(row), row[2], row[3])
            self.record_one(row)
            return
        target.send_stored(self._deliveries(rows), self._first_prefix)
        self.record(rows)

    def send_each(self, targets: Sequence[Target], rows: list[StoredRow]) -> None:
        """Send messages as they are, each to a receiver of its own."""
        first = self._state.delivered_consumer + 1
        send_each(targets, rows, self._first_reply, first, self.pending - 1)
        self.record(rows)

    def outgoing(self, rows: list[StoredRow]) -> Iterable[Outgoing]:
        """What ``send_stored`` would send, message by message; the caller sends and records."""
        if len(rows) == 1:  # as where each message looks for its own receiver
            [row] = rows
            return [(row[1], self.reply_of(row), row[2], row[3])]
        return self._deliveries(rows).outgoing(self._first_prefix)

    def _deliveries(self, rows: list[StoredRow]) -> Deliveries:
        first = self._state.delivered_consumer + 1
        return self._consumer.backlog.deliveries(rows, first, self.pending - 1)

    def reply_of(self, row: StoredRow, ahead: int = 0) -> bytes:
        """The reply subject of a message that goes out after ``ahead`` others."""
        consumer_seq = self._state.delivered_consumer + 1 + ahead
        return self._first_reply % (row[0], consumer_seq, row[4], self.pending - 1 - ahead)

    def reply_size(self, rows: list[StoredRow]) -> int | None:
        """How long the reply subjects of these are, if all are of one length; else None."""
        last = len(rows) - 1
        replies = self.reply_of(rows[0]), self.reply_of(rows[last], last)
        # The numbers in them only rise or only fall: those in between are as long as the outermost.
        tokens = [[len(token) for token in reply.rsplit(b".", 4)[1:]] for reply in replies]
        return len(replies[0]) if tokens[0] == tokens[1] else None

    def redelivery(self, row: StoredRow) -> Outgoing:
        """What goes out for a message that is delivered again."""
        sequence, subject, headers, payload, timestamp_ns = row
        state = self._state
        count, consumer_seq = state.count_of(sequence) + 1, state.delivered_consumer + 1
        reply = self._reply % (count, sequence, consumer_seq, timestamp_ns, self.pending)
        return subject, reply, headers, payload

    def record_redelivery(self, sequence: int) -> None:
        """The first of the redelivery queue goes out."""
        self._state.deliver_again(sequence, self.now_ns)
        self.left -= 1
        self.delivered = True


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
