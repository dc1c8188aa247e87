"""A consumer's turn: waiting requests meet messages.

Redeliveries go first, then new messages, read from the store in batches. Each inbox is looked up once per
turn. A turn is bounded, so that one consumer can not keep the others, or the disk, waiting.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ......api.acks import ack_prefix
from ......message import StoredMessage, StoredRow
from ....net.targets import answered
from ...headers import statuses
from ..delivery_state import Run
from .policy import SERVE, SKIP
from .queue import WaitingRequest

if TYPE_CHECKING:
    from ..consumer import Consumer

__all__ = ["Turn", "TurnEnd"]

_TURN_MESSAGES: Final = 1024
_NEVER: Final = 1 << 62
_TURN_BYTES: Final = 1024 * 1024


class TurnEnd(Enum):
    """Why a turn ended, and so what wakes the consumer again."""

    NO_REQUESTS = "a pull"
    STALLED = "an ack"
    EXHAUSTED = "new messages"
    BLOCKED = "room in a receiver's output"
    HELD = "an answer of the receiver, or time"
    BUDGET = "the next tick"
    UNREADABLE = "time"


class Turn:
    """Runs the turns of one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._resolve = consumer.context.bus.resolve
        prefix = ack_prefix(consumer.stream.name, consumer.name).replace(b"%", b"%%")
        self._first_reply = prefix + b"1.%d.%d.%d.%d"
        self._reply = prefix + b"%d.%d.%d.%d.%d"
        self._number = 0
        self._now_ns = 0
        self._pending = 0
        self._counted = False
        self._left = 0
        self._aside: list[WaitingRequest] = []
        self._awaited = _NEVER
        """How many acks pending would suffice for one of those aside."""
        self._blocked = False
        self.delivered = False
        """Whether the last turn delivered anything."""

    def run(self, now_ns: int) -> TurnEnd:
        """Deliver what can be delivered now. Raises StoreReadError at what cannot be read now."""
        consumer = self._consumer
        self._number += 1
        self._now_ns = now_ns
        self._left = _TURN_MESSAGES
        self._blocked = False
        self.delivered = False
        self._counted = False
        try:
            served = not consumer.state.redeliver or self._redeliver()
            return self._deliver_new() if served else self._stopped()
        finally:
            self._put_back()

    def _recall(self) -> None:
        """Those aside are looked at again once enough acks are pending for one of them."""
        if len(self._consumer.state.pending) >= self._awaited:
            self._put_back()

    def _put_back(self) -> None:
        """Those who stood aside take their places again."""
        while self._aside:
            self._consumer.queue.push_front(self._aside.pop())
        self._awaited = _NEVER

    def _count(self) -> None:
        """Count what is pending, once per turn and only when there is something to deliver."""
        if not self._counted:
            self._counted = True
            self._pending = self._consumer.num_pending()

    def _stopped(self) -> TurnEnd:
        """No request could be served."""
        if self._left <= 0:
            return TurnEnd.BUDGET
        return TurnEnd.BLOCKED if self._blocked else TurnEnd.NO_REQUESTS

    def _redeliver(self) -> bool:
        """Serve the redelivery queue; False when requests or the turn ran out before it was empty."""
        consumer = self._consumer
        state = consumer.state
        while sequence := state.peek_redelivery():
            message = consumer.stream.store.get(sequence)
            if message is None:
                consumer.acks.forget([sequence])
                continue
            if self._left <= 0:
                return False
            self._count()
            request = self._choose(self._pending + 1)
            if request is None:
                return False
            self._send_again(request, message)
        return True

    def _deliver_new(self) -> TurnEnd:
        consumer = self._consumer
        queue = consumer.queue
        store = consumer.stream.store
        while True:
            if not queue.waiting:
                return self._stopped()
            if self._left <= 0:
                return TurnEnd.BUDGET
            room = consumer.room()
            if room <= 0:
                return TurnEnd.STALLED
            if self._aside:
                self._recall()
                if len(self._aside) == queue.waiting:
                    return self._stopped()
            wanted = min(queue.wanted, room, self._left)
            messages = consumer.read(wanted, _TURN_BYTES)
            if not messages:
                consumer.skip_to(store.durable_seq + 1)
                return TurnEnd.EXHAUSTED
            self._count()
            if not self._hand_out(messages):
                return self._stopped()

    def _hand_out(self, messages: list[StoredRow]) -> bool:
        """Give a batch to the requests; False when no request was left for some of it."""
        consumer = self._consumer
        run: Run | None = None
        steady = consumer.policy.steady
        queue = consumer.queue
        index, size = 0, len(messages)
        in_turn = steady and not consumer.alters_messages
        while index < size:
            if in_turn and queue.waiting > 1:
                run = run or consumer.state.begin_run(self._now_ns)
                index = self._send_in_turn(messages, index, run)
                if index == size:
                    break
            request = self._choose(self._pending)
            if request is None:
                break
            if run is None:
                run = consumer.state.begin_run(self._now_ns)
            alone = steady and queue.waiting == 1
            stop = min(size, index + max(request.left, 1)) if alone else index + 1
            index = self._send_new(request, messages, index, stop, run)
        if run is not None:
            consumer.state.end_run(run)
        consumer.advance_pending(self._pending)
        self._left -= max(index, 1)
        self.delivered = self.delivered or index > 0
        return index == size

    def _choose(self, pending: int) -> WaitingRequest | None:
        """The request for the next message, out of its lane; None when there is none for it.

        ``pending`` counts that message, whether it is new or comes again.
        """
        consumer = self._consumer
        queue, policy = consumer.queue, consumer.policy
        if self._aside:
            self._recall()
        while (request := queue.pop()) is not None:
            if request.turn != self._number:
                request.target = self._resolve(request.inbox)
                request.turn = self._number
            if request.target is None:
                queue.finish(request)  # nobody listens any more: the pull was given up
                continue
            if request.target.blocked:
                self._blocked = True
                self._aside.append(request)
                continue
            ack_pending = len(consumer.state.pending)
            verdict = policy.verdict(request, pending, ack_pending, self._now_ns)
            if verdict is SERVE:
                return request
            if verdict is SKIP:
                self._aside.append(request)
                if request.min_ack_pending:
                    self._awaited = min(self._awaited, request.min_ack_pending)
            else:
                consumer.pulls.end(request, verdict, with_pending=True)
        return None

    def _send_new(
        self,
        request: WaitingRequest,
        messages: list[StoredRow],
        index: int,
        stop: int,
        run: Run,
    ) -> int:
        """Send ``messages[index:stop]`` to one request, or less if they do not fit; returns how far."""
        consumer = self._consumer
        if not (request.bounded or consumer.alters_messages):
            return self._send_as_they_are(request, messages, index, stop, run)
        target = request.target
        assert target is not None
        send, deliver_new, template = target.send, consumer.state.deliver_new, self._first_reply
        next_consumer_seq = consumer.state.delivered_consumer + 1
        pending = self._pending
        start, total = index, 0
        bytes_left = request.bytes_left if request.bounded else -1
        altered = consumer.alters_messages
        while index < stop:
            sequence, subject, headers, payload, timestamp_ns = messages[index]
            pending -= 1
            reply = template % (sequence, next_consumer_seq, timestamp_ns, pending)
            if altered:
                headers, payload = consumer.altered(headers, payload)
            if bytes_left >= 0:
                size = len(subject) + len(reply) + len(headers) + len(payload)
                if total + size > bytes_left:
                    pending += 1
                    break
                total += size
            if altered:
                headers = consumer.with_policy_header(headers)
            deliver_new(run, sequence)
            next_consumer_seq += 1
            send(subject, reply, headers, payload)
            index += 1
            if total == bytes_left:
                stop = index  # used up exactly: the request is over without a word
        self._pending = pending
        self._after(request, index - start, total, fitted=index == stop)
        return index

    def _send_in_turn(self, messages: list[StoredRow], index: int, run: Run) -> int:
        """Send messages from ``index`` on, one to each request in turn; returns how far that went.

        For consumers that serve everybody and alter nothing.
        """
        state, template = self._consumer.state, self._first_reply
        some = messages[index:] if index else messages
        targets = self._consumer.queue.take_turns(
            len(some), self._number, self._now_ns, self._resolve
        )
        if not targets:
            return index
        count = len(targets)
        if count < len(some):
            some = some[:count]
        first = state.delivered_consumer + 1
        pending = self._pending - 1
        if targets.count(targets[0]) == count:
            targets[0].send_stored(some, template, first, pending)
        else:
            outgoing = answered(some, template, first, pending)
            for target, message in zip(targets, outgoing, strict=True):
                target.send(*message)
        state.deliver_many(run, [message[0] for message in some])
        self._pending -= count
        return index + count

    def _send_as_they_are(
        self,
        request: WaitingRequest,
        messages: list[StoredRow],
        index: int,
        stop: int,
        run: Run,
    ) -> int:
        """``_send_new`` for a request without a limit in bytes, to a consumer that alters nothing."""
        state, template = self._consumer.state, self._first_reply
        assert request.target is not None
        some = messages if index == 0 and stop == len(messages) else messages[index:stop]
        first = state.delivered_consumer + 1
        request.target.send_stored(some, template, first, self._pending - 1)
        state.deliver_many(run, [message[0] for message in some])
        self._pending -= len(some)
        self._after(request, len(some), 0, fitted=True)
        return stop

    def _send_again(self, request: WaitingRequest, message: StoredMessage) -> None:
        """Send one redelivery to a request, unless it is too large for it."""
        consumer = self._consumer
        state = consumer.state
        sequence, subject, headers, payload, timestamp_ns = message
        count = state.count_of(sequence) + 1
        consumer_seq = state.delivered_consumer + 1
        reply = self._reply % (count, sequence, consumer_seq, timestamp_ns, self._pending)
        headers, payload = consumer.altered(headers, payload)
        size = len(subject) + len(reply) + len(headers) + len(payload)
        if request.bounded and size > request.bytes_left:
            self._after(request, 0, 0, fitted=False)
            return
        state.deliver_again(sequence, self._now_ns)
        assert request.target is not None
        request.target.send(subject, reply, consumer.with_policy_header(headers), payload)
        self._left -= 1
        self.delivered = True
        self._after(request, 1, size, fitted=True)

    def _after(self, request: WaitingRequest, count: int, size: int, *, fitted: bool) -> None:
        """Account for what a popped request got, and end it or let it wait on."""
        consumer = self._consumer
        queue = consumer.queue
        if count:
            queue.delivered(request, count, size, self._now_ns)
        if not fitted:
            if not count:
                consumer.policy.rejected(request)
            consumer.pulls.end(request, statuses.SIZE_EXCEEDS, with_pending=True)
        elif request.bounded and request.bytes_left <= 0:
            queue.finish(request)
        elif request.left <= 0:
            if request.bounded:
                consumer.pulls.end(request, statuses.BATCH_COMPLETED, with_pending=True)
            else:
                queue.finish(request)
        else:
            queue.push_back(request)
