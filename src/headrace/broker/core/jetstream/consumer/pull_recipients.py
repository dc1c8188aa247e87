"""The waiting requests of a pull consumer, as the recipients of a delivery pass.

The policy says which request may have the next message. Each inbox is looked up once per pass.
"""

from __future__ import annotations

from typing import Final

from .....message import StoredRow
from ...ports import Target
from ...server_headers import with_place, with_places
from ..statuses import BATCH_COMPLETED, SIZE_EXCEEDS
from .delivery_pass import PassEnd, Sender
from .priority_policies import SERVE, SKIP, Policy
from .pull_queue import EndRequest, PullQueue, Thresholds, WaitingRequest
from .view import ConsumerView

_NEVER: Final = 1 << 62


class PullRecipients:
    """Hands messages to requests in the policy's order."""

    def __init__(
        self,
        consumer: ConsumerView,
        sender: Sender,
        queue: PullQueue,
        policy: Policy,
        end_request: EndRequest,
    ) -> None:
        self._state = consumer.state
        self._resolve = consumer.context.bus.resolve
        self._sender = sender
        self._queue = queue
        self._policy = policy
        self._end_request = end_request
        self._pass_number = 0
        self._aside: list[WaitingRequest] = []
        self._awaited = _NEVER
        """How many acks pending would suffice for one of those aside."""
        self._is_blocked = False

    # -- the pass

    def begin(self) -> PassEnd | None:
        self._pass_number += 1
        self._is_blocked = False
        return None

    def end(self) -> None:
        """Requests that stood aside go back to their places."""
        while self._aside:
            self._queue.push_front(self._aside.pop())
        self._awaited = _NEVER

    def obstacle(self) -> PassEnd | None:
        if not self._queue.waiting or self._sender.left <= 0:
            return self.stopped()
        return None

    def stopped(self) -> PassEnd:
        if self._sender.left <= 0:
            return PassEnd.BUDGET
        return PassEnd.BLOCKED if self._is_blocked else PassEnd.NO_REQUESTS

    def wanted(self) -> int:
        queue, lanes = self._queue, self._policy.open_lanes
        if self._aside:
            self._recall()
            if len(self._aside) == queue.waiting_in(lanes):
                return 0
        return queue.wanted_in(lanes)

    def _recall(self) -> None:
        """Put requests aside back once enough acks are pending for one of them."""
        if len(self._state.pending) >= self._awaited:
            self.end()

    def _next_request(self, pending: int) -> WaitingRequest | None:
        """The request for the next message, out of its lane; None when there is none for it.

        ``pending`` counts that message, whether it is new or comes again.
        """
        queue, policy = self._queue, self._policy
        if self._aside:
            self._recall()
        while (request := queue.pop(policy.open_lanes)) is not None:
            if request.pass_number != self._pass_number:
                request.target = self._resolve(request.inbox)
                request.pass_number = self._pass_number
            if request.target is None:
                queue.finish(request)  # nobody listens any more: the pull was given up
                continue
            if request.target.blocked:
                self._is_blocked = True
                self._aside.append(request)
                continue
            ack_pending = len(self._state.pending)
            verdict = policy.verdict(request, pending, ack_pending, self._sender.now_ns)
            if verdict is SERVE:
                self._place(request)
                return request
            if verdict is SKIP:
                self._aside.append(request)
                if enough := request.terms.min_ack_pending:
                    self._awaited = min(self._awaited, enough)
            else:
                self._end_request(request, verdict)
        return None

    def _place(self, request: WaitingRequest) -> None:
        """A request that is served belongs to another lane when that gave it the pin."""
        lane = self._policy.lane(request)
        if lane != request.lane:
            self._queue.move(request, lane)
            self.end()  # those aside stand by from now on, whyever they stood aside

    # -- new messages

    def hand_out(self, rows: list[StoredRow]) -> PassEnd | None:
        queue, policy, sender = self._queue, self._policy, self._sender
        steady = policy.steady
        index, size = 0, len(rows)
        while index < size:
            # Who stands aside for a threshold may be next after any message.
            several = queue.waiting_in(policy.open_lanes) > 1 if steady else not self._aside
            if several and policy.takes_turns:
                index = self._send_in_turn(rows, index)
                if index == size:
                    break
            request = self._next_request(sender.pending)
            if request is None:
                return self.stopped()
            alone = steady and queue.waiting_in(policy.open_lanes) == 1
            stop = min(size, index + max(request.left, 1)) if alone else index + 1
            some = rows if stop - index == size else rows[index:stop]
            index += self._send(request, request.target, some)
        return None

    def _send_in_turn(self, rows: list[StoredRow], index: int) -> int:
        """Send messages from ``index`` on, one to each request in turn; returns how far that went."""
        sender, policy = self._sender, self._policy
        some = rows[index:] if index else rows
        targets = self._queue.serve_in_turn(
            len(some),
            policy.open_lanes,
            policy.pin_id,
            self._pass_number,
            sender.now_ns,
            self._resolve,
            Thresholds(sender.pending, len(self._state.pending), int(self._state.tracks)),
        )
        if not targets:
            return index
        count = len(targets)
        if count < len(some):
            some = some[:count]
        some = _headed(some, policy.header())
        if targets.count(targets[0]) == count:
            sender.send_stored(targets[0], some)
        else:
            sender.send_each(targets, some)
        return index + count

    def _send(self, request: WaitingRequest, target: Target | None, rows: list[StoredRow]) -> int:
        """Send messages to one request, as far as they fit; returns how many did."""
        assert target is not None
        sender, pin = self._sender, self._policy.header()
        if not request.bounded:
            sender.send_stored(target, _headed(rows, pin))
            self._served(request, len(rows), 0, fitted=True)
            return len(rows)
        bytes_left, count, total = request.bytes_left, 0, 0
        for subject, reply, headers, payload in sender.outgoing(rows):
            size = len(subject) + len(reply) + len(headers) + len(payload)
            if bytes_left < total + size:
                break
            total += size
            target.send(subject, reply, with_place(headers, pin) if pin else headers, payload)
            count += 1
            if total == bytes_left:
                break  # used up exactly: the request is over without a word
        if count:
            sender.record(rows if count == len(rows) else rows[:count])
        self._served(request, count, total, fitted=count == len(rows) or total == bytes_left)
        return count

    # -- redeliveries

    def resend(self, row: StoredRow) -> PassEnd | None:
        """Send one message again, unless it is too large for the request."""
        sender = self._sender
        request = self._next_request(sender.pending + 1)
        if request is None:
            return self.stopped()
        subject, reply, headers, payload = sender.redelivery(row)
        size = len(subject) + len(reply) + len(headers) + len(payload)
        if request.bounded and size > request.bytes_left:
            self._served(request, 0, 0, fitted=False)
            return None
        sender.record_redelivery(row[0])
        assert request.target is not None
        pin = self._policy.header()
        request.target.send(subject, reply, with_place(headers, pin) if pin else headers, payload)
        self._served(request, 1, size, fitted=True)
        return None

    def _served(self, request: WaitingRequest, count: int, size: int, *, fitted: bool) -> None:
        """Account for what a popped request got, and end it or let it wait on."""
        queue = self._queue
        if count:
            queue.delivered(request, count, size, self._sender.now_ns)
        if not fitted:
            if not count:
                self._policy.rejected(request)
            self._end_request(request, SIZE_EXCEEDS)
        elif request.bounded and request.bytes_left <= 0:
            queue.finish(request)
        elif request.left <= 0:
            if request.bounded:
                self._end_request(request, BATCH_COMPLETED)
            else:
                queue.finish(request)
        else:
            queue.push_back(request)


def _headed(rows: list[StoredRow], line: bytes) -> list[StoredRow]:
    """Messages with a header line more, if there is one."""
    if not line:
        return rows
    if len(rows) == 1:
        [(sequence, subject, headers, payload, at)] = rows
        return [(sequence, subject, with_place(headers, line), payload, at)]
    blocks = with_places([row[2] for row in rows], line)
    return [
        (sequence, subject, block, payload, at)
        for (sequence, subject, _, payload, at), block in zip(rows, blocks, strict=True)
    ]
