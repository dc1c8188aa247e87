"""A push consumer's turn: messages go to whoever listens on the deliver subject, in batches.

Like a pull consumer's ``Turn``, without requests: redeliveries first, then new messages, bounded, so that
one consumer can not keep the others waiting.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from ......api.acks import ack_prefix
from ......limits import INGEST_PENDING_BYTES_MAX
from ......message import StoredRow
from ....net.targets import Outgoing, answered
from ..delivery_state import Run
from ..pull.delivery_pass import TurnEnd
from .push import Push
from .window import FlowWindow

if TYPE_CHECKING:
    from ....ports import Target
    from ..consumer import Consumer

__all__ = ["PushTurn"]

_TURN_MESSAGES: Final = 1024
_TURN_BYTES: Final = 1024 * 1024
_REST_NS: Final = 20_000_000


class PushTurn:
    """Runs the turns of one push consumer."""

    def __init__(self, consumer: Consumer, push: Push) -> None:
        self._consumer = consumer
        self._push = push
        self._resolve = consumer.context.bus.resolve
        prefix = ack_prefix(consumer.stream.name, consumer.name).replace(b"%", b"%%")
        self._first_reply = prefix + b"1.%d.%d.%d.%d"
        self._reply = prefix + b"%d.%d.%d.%d.%d"
        self._now_ns = 0
        self._pending = 0
        self._counted = False
        self._left = 0
        self._target: Target | None = None
        self.delivered = False
        """Whether the last turn delivered anything."""

    def run(self, now_ns: int) -> TurnEnd:
        """Deliver what can be delivered now. Raises StoreReadError at what cannot be read now."""
        self._now_ns = now_ns
        self._left = _TURN_MESSAGES
        self._counted = False
        self.delivered = False
        if self._consumer.context.storage.pending_bytes > INGEST_PENDING_BYTES_MAX:
            # What is pushed may end in another stream: it waits for the disk as publishers do.
            self._push.rest_until(now_ns + _REST_NS)
            return TurnEnd.HELD
        self._target = self._resolve(self._push.subject)
        try:
            return self._redeliver() or self._deliver_new()
        finally:
            if self.delivered:
                self._push.delivered(now_ns)

    def _obstacle(self) -> TurnEnd | None:
        """What keeps the next message from going out, if anything."""
        push = self._push
        if not push.active:
            return TurnEnd.NO_REQUESTS
        if push.group:
            self._target = self._resolve(push.subject)  # each message is another member's
        if self._target is None:
            return TurnEnd.NO_REQUESTS
        if self._target.blocked:
            return TurnEnd.BLOCKED
        if push.is_metered and push.is_held(self._now_ns):
            return TurnEnd.HELD
        return TurnEnd.BUDGET if self._left <= 0 else None

    def _count(self) -> None:
        if not self._counted:
            self._counted = True
            self._pending = self._consumer.num_pending()

    def _redeliver(self) -> TurnEnd | None:
        """Serve the redelivery queue; why that stopped, or None when it is empty."""
        consumer = self._consumer
        state = consumer.state
        while sequence := state.peek_redelivery():
            message = consumer.stream.store.get(sequence)
            if message is None:
                consumer.acks.forget([sequence])
                continue
            end = self._obstacle()
            if end is not None:
                return end
            self._count()
            consumer_seq, count = state.deliver_again(sequence, self._now_ns)
            self._send(message, count, consumer_seq)
        return None

    def _deliver_new(self) -> TurnEnd:
        consumer = self._consumer
        while True:
            end = self._obstacle()
            if end is not None:
                return end
            room = consumer.room()
            if room <= 0:
                return TurnEnd.STALLED
            messages = consumer.read(min(room, self._left), _TURN_BYTES)
            if not messages:
                consumer.skip_to(consumer.stream.store.durable_seq + 1)
                return TurnEnd.EXHAUSTED
            self._count()
            self._hand_out(messages)

    def _hand_out(self, messages: list[StoredRow]) -> None:
        """Send a batch, or as much of it as may go."""
        consumer, push = self._consumer, self._push
        state = consumer.state
        run = state.begin_run(self._now_ns)
        assert self._target is not None
        at_once = self._target.steady and not consumer.alters_messages
        if push.window is not None and push.rate is None and not push.group:
            if at_once:
                self._send_pieces(messages, run, push.window)
            else:
                self._send_by_window(messages, run, push.window)
        elif push.is_metered or push.group:
            for message in messages:
                if self._obstacle() is not None:
                    break
                self._pending -= 1
                self._send(message, 1, state.deliver_new(run, message[0]))
        elif at_once:
            self._send_stored(messages, run)
        else:
            self._send_all(messages, run)
        state.end_run(run)
        consumer.advance_pending(self._pending)

    def _send_stored(self, rows: list[StoredRow], run: Run) -> None:
        """Send a batch as it is to listeners that take all of it."""
        assert self._target is not None
        first = self._consumer.state.delivered_consumer + 1
        self._target.send_stored(rows, self._first_reply, first, self._pending - 1)
        self._note([row[0] for row in rows], run)

    def _send_pieces(self, rows: list[StoredRow], run: Run, window: FlowWindow) -> None:
        """``_send_stored`` under flow control: up to where it is time to ask, or to wait."""
        start, behind = 0, 0
        ends = list(accumulate(self._sizes(rows)))
        while start < len(rows) and not window.is_full:
            stop = min(bisect_left(ends, behind + window.slack) + 1, len(rows))
            self._send_stored(rows[start:stop], run)
            self._push.sent(ends[stop - 1] - behind, self._now_ns)
            start, behind = stop, ends[stop - 1]

    def _sizes(self, rows: list[StoredRow]) -> list[int]:
        """What each of these counts when it is sent, with its reply subject."""
        first, pending, count = (
            self._consumer.state.delivered_consumer + 1,
            self._pending,
            len(rows),
        )
        template = self._first_reply
        ends = [(rows[at][0], first + at, rows[at][4], pending - 1 - at) for at in (0, count - 1)]
        if [len(b"%d" % n) for n in ends[0]] == [len(b"%d" % n) for n in ends[1]]:
            size = len(template % ends[0])  # these numbers only rise or fall: all are as long
            return [size + len(row[1]) + len(row[2]) + len(row[3]) for row in rows]
        outgoing = answered(rows, template, first, pending - 1)
        return [sum(map(len, message)) for message in outgoing]

    def _send_all(self, messages: list[StoredRow], run: Run) -> None:
        """Send a batch to one listener, up to the last message it wants."""
        assert self._target is not None
        consumed: list[int] = []
        self._target.send_many(self._frames(messages, consumed))
        self._note(consumed, run)

    def _send_by_window(self, messages: list[StoredRow], run: Run, window: FlowWindow) -> None:
        """Send a batch under flow control, up to the end of the window."""
        assert self._target is not None
        send, report = self._target.send, self._push.sent
        consumed: list[int] = []
        size, slack = 0, window.slack
        for subject, reply, headers, payload in self._frames(messages, consumed):
            send(subject, reply, headers, payload)
            size += len(subject) + len(reply) + len(headers) + len(payload)
            if size >= slack:
                report(size, self._now_ns)
                if window.is_full:
                    size = 0
                    break
                size, slack = 0, window.slack
        if size:
            report(size, self._now_ns)
        self._note(consumed, run)

    def _note(self, consumed: list[int], run: Run) -> None:
        """These went out for the first time."""
        if consumed:
            self._consumer.state.deliver_many(run, consumed)
            self._pending -= len(consumed)
            self._left -= len(consumed)
            self.delivered = True

    def _frames(self, messages: list[StoredRow], consumed: list[int]) -> Iterator[Outgoing]:
        """What is sent of messages, as long as somebody listens; ``consumed`` tells how far that went."""
        consumer, push = self._consumer, self._push
        template, altered = self._first_reply, consumer.alters_messages
        consumer_seq, pending = consumer.state.delivered_consumer, self._pending
        for sequence, subject, headers, payload, timestamp_ns in messages:
            if not push.active:
                return
            consumer_seq += 1
            pending -= 1
            consumed.append(sequence)
            if altered:
                headers, payload = consumer.altered(headers, payload)
            reply = template % (sequence, consumer_seq, timestamp_ns, pending)
            yield subject, reply, headers, payload

    def _send(self, message: StoredRow, count: int, consumer_seq: int) -> None:
        sequence, subject, headers, payload, timestamp_ns = message
        reply = self._reply % (count, sequence, consumer_seq, timestamp_ns, self._pending)
        if self._consumer.alters_messages:
            headers, payload = self._consumer.altered(headers, payload)
        assert self._target is not None
        self._target.send(subject, reply, headers, payload)
        self._left -= 1
        self.delivered = True
        if self._push.is_metered:
            size = len(subject) + len(reply) + len(headers) + len(payload)
            self._push.sent(size, self._now_ns)
