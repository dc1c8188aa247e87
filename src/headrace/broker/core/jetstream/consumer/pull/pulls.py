"""Pull requests as they arrive at a consumer, and how they end."""

from __future__ import annotations

from itertools import islice
from typing import Final

from ......api import names
from ......errors import StoreReadError
from ....ports.bus import Origin
from ...headers import statuses
from ...headers.published import required_level_too_high
from ..view import ConsumerView
from .pinning import Pinning
from .policy import PinnedClient, Policy
from .queue import PullQueue, WaitingRequest
from .request import PIN_ID_MISMATCH, check_pull, parse_pull

_EVICT_EVERY_NS: Final = 1_000_000_000  # a full queue is searched for dead requests this often
_DUE_PER_TICK: Final = 1024
_TOO_MANY: Final = statuses.status(names.EXCEEDED_MAX_WAITING)
_REQUESTS_PENDING: Final = statuses.status(names.REQUESTS_PENDING)
_PUSH_BASED: Final = statuses.status(names.CONSUMER_IS_PUSH)
_LEVEL: Final = statuses.status(names.REQUIRED_LEVEL)


class Pulls:
    """The reception of one consumer's pull requests."""

    def __init__(self, consumer: ConsumerView, queue: PullQueue, policy: Policy) -> None:
        self._consumer = consumer
        self._bus = consumer.context.bus
        self._queue = queue
        self._policy = policy
        self._evicted_ns = -_EVICT_EVERY_NS
        self.pinning: Pinning | None = None
        if isinstance(policy, PinnedClient):
            self.pinning = Pinning(consumer, policy, queue, self.end)

    def let_go(self) -> None:
        """The consumer is closed, and nobody has requests for it."""
        if self.pinning is not None:
            self.pinning.let_go()
        self.pinning = None

    def receive(
        self, reply: bytes, headers: bytes, body: bytes, origin: Origin | None = None
    ) -> None:
        """Let a pull request wait, or answer it at once."""
        consumer, queue = self._consumer, self._queue
        parsed = parse_pull(body)
        refusal = check_pull(parsed, consumer.config)
        if consumer.config.deliver_subject:
            refusal = _PUSH_BASED
        if required_level_too_high(headers, consumer.context.options.api_level):
            refusal = _LEVEL
        if refusal:
            self.say(reply, refusal)
            return
        now_ns = consumer.context.clock.monotonic_ns()
        consumer.inactivity.last_active_ns = now_ns
        request = WaitingRequest(reply, parsed.request, now_ns, plain=parsed.plain, origin=origin)
        if self.pinning is not None and not self.pinning.admits(request, now_ns):
            self.say(reply, PIN_ID_MISMATCH)
            return
        try:
            if request.no_wait and not self._may_join(request):
                return
        except StoreReadError as error:  # it cannot be counted now
            self.say(reply, statuses.unreadable(error))
            return
        if queue.is_full and not self._evict(now_ns):
            if not request.heartbeat_ns:  # with one, the client notices the silence
                self.say(reply, _TOO_MANY)
            return
        request.seen_seq = consumer.stream.store.last_seq
        request.lane = self._policy.lane(request)
        queue.add(request)
        if request.expires_ns and request.expires_ns < now_ns:  # a time that has passed
            self.end(request, statuses.REQUEST_TIMEOUT)
        consumer.wake()
        consumer.timer.arm()

    def _may_join(self, request: WaitingRequest) -> bool:
        """Whether a no-wait request joins the queue; False when it was answered instead."""
        consumer, queue = self._consumer, self._queue
        consumer.deliver_at_once()  # earlier requests are served first
        available = consumer.backlog.num_pending() + consumer.state.late
        if available < queue.wanted:
            self.drop_abandoned()
        if not available and not request.expires_ns:
            self.say(request.inbox, statuses.NO_MESSAGES)
            return False
        if available and available < queue.wanted:
            self.say(request.inbox, _REQUESTS_PENDING)
            return False
        return True

    def _evict(self, now_ns: int) -> bool:
        """Make room in a full queue, if there is some to make."""
        queue = self._queue
        if now_ns - self._evicted_ns >= _EVICT_EVERY_NS:
            self._evicted_ns = now_ns
            self.drop_abandoned()
        return not queue.is_full

    def drop_abandoned(self) -> None:
        """Drop requests nobody listens to any more."""
        queue = self._queue
        for request in list(queue):
            if self._bus.resolve(request.inbox) is None:
                queue.finish(request)

    def say(self, inbox: bytes, block: bytes) -> None:
        self._bus.publish(inbox, b"", block, b"")

    def end(self, request: WaitingRequest, block: bytes, *, with_pending: bool = True) -> None:
        """Finish a request with a status, which tells what it did not get unless that is left out."""
        if with_pending:
            left = request.bytes_left if request.bounded else 0
            block = statuses.with_pending(block, request.left, left)
        self._queue.finish(request)
        self.say(request.inbox, block)

    def end_all(self, block: bytes, *, with_pending: bool) -> None:
        for request in list(self._queue):
            self.end(request, block, with_pending=with_pending)

    def end_one_shots(self, block: bytes = statuses.NO_MESSAGES) -> None:
        """There is nothing more now, or ``block`` says why not: finish requests that do not wait.

        One that came while messages were on their way to the disk waits for those.
        """
        if not self._queue.has_one_shots:
            return
        durable_seq = self._consumer.stream.store.durable_seq
        for request in self._queue.impatient():
            if request.one_shot and request.seen_seq <= durable_seq:
                self.end(request, block, with_pending=False)

    def next_time_ns(self) -> int | None:
        return self._queue.next_time_ns()

    def run_due(self, now_ns: int) -> None:
        """Expired requests get their 408, quiet ones a heartbeat, abandoned ones nothing.

        With any of them end all requests that do not wait and that ``max_ack_pending`` had kept.
        """
        state = self._consumer.state
        quiet: list[WaitingRequest] = []
        some_due = False
        # Those due beyond that are so in the next tick.
        for request, expired in islice(self._queue.due(now_ns), _DUE_PER_TICK):
            some_due = True
            if self._bus.resolve(request.inbox) is None:
                self._queue.finish(request)
            elif expired:
                self.end(request, statuses.REQUEST_TIMEOUT)
            else:
                quiet.append(request)
        if some_due and not self._consumer.unread.holds:
            self.end_one_shots()
        for request in quiet:
            if request.waiting:
                position = (state.delivered_consumer, state.delivered_stream)
                self.say(request.inbox, statuses.heartbeat(*position))
