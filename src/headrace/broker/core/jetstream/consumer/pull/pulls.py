"""Pull requests as they arrive at a consumer, and how they end."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ......api import names
from ......errors import StoreReadError
from ....ports import Origin
from ...api.dispatcher import required_level_too_high
from ...headers import statuses
from .queue import WaitingRequest
from .request import PIN_ID_MISMATCH, check_pull, parse_pull

if TYPE_CHECKING:
    from ..consumer import Consumer

__all__ = ["Pulls"]

_EVICT_EVERY_NS: Final = 1_000_000_000  # a full queue is searched for dead requests this often
_DUE_PER_TICK: Final = 1024
_TOO_MANY: Final = statuses.status(names.EXCEEDED_MAX_WAITING)
_REQUESTS_PENDING: Final = statuses.status(names.REQUESTS_PENDING)
_PUSH_BASED: Final = statuses.status(names.CONSUMER_IS_PUSH)
_LEVEL: Final = statuses.status(names.REQUIRED_LEVEL)


class Pulls:
    """The reception of one consumer's pull requests."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._bus = consumer.context.bus
        self._evicted_ns = -_EVICT_EVERY_NS

    def take(self, reply: bytes, headers: bytes, body: bytes, origin: Origin | None = None) -> None:
        """Take one pull request: let it wait, or answer it at once."""
        consumer = self._consumer
        parsed = parse_pull(body)
        refusal = check_pull(parsed, consumer.config)
        if consumer.push is not None:
            refusal = _PUSH_BASED
        if required_level_too_high(headers, consumer.context.options.api_level):
            refusal = _LEVEL
        if refusal:
            self.say(reply, refusal)
            return
        now_ns = consumer.context.clock.monotonic_ns()
        consumer.alarm.last_active_ns = now_ns
        request = WaitingRequest(reply, parsed.request, now_ns, plain=parsed.plain, origin=origin)
        if consumer.pinning is not None and not consumer.pinning.take(request, now_ns):
            self.say(reply, PIN_ID_MISMATCH)
            return
        try:
            if request.no_wait and not self._may_join(request):
                return
        except StoreReadError as error:  # it cannot be counted now
            self.say(reply, statuses.unreadable(error))
            return
        if consumer.queue.is_full and not self._evict(now_ns):
            if not request.heartbeat_ns:  # with one, the client notices the silence
                self.say(reply, _TOO_MANY)
            return
        request.seen_seq = consumer.stream.store.last_seq
        request.lane = consumer.policy.lane(request)
        consumer.queue.add(request)
        if (
            request.expires_ns and request.expires_ns < now_ns
        ):  # it asked for a time that has passed
            self.end(request, statuses.REQUEST_TIMEOUT, with_pending=True)
        consumer.wake()
        consumer.alarm.arm()

    def _may_join(self, request: WaitingRequest) -> bool:
        """Whether a no-wait request joins the queue; False when it was answered instead."""
        consumer = self._consumer
        if consumer.context.ready.pop(consumer, False) is None:
            consumer.deliver()  # who came before is served before
        available = consumer.num_pending() + consumer.state.late
        if available < consumer.queue.wanted:
            self.drop_abandoned()
        if not available and not request.expires_ns:
            self.say(request.inbox, statuses.NO_MESSAGES)
            return False
        if available and available < consumer.queue.wanted:
            self.say(request.inbox, _REQUESTS_PENDING)
            return False
        return True

    def _evict(self, now_ns: int) -> bool:
        """Make room in a full queue, if there is some to make."""
        queue = self._consumer.queue
        if now_ns - self._evicted_ns >= _EVICT_EVERY_NS:
            self._evicted_ns = now_ns
            self.drop_abandoned()
        return not queue.is_full

    def drop_abandoned(self) -> None:
        """Drop requests nobody listens to any more."""
        queue = self._consumer.queue
        for request in list(queue):
            if self._bus.resolve(request.inbox) is None:
                queue.finish(request)

    def say(self, inbox: bytes, block: bytes) -> None:
        """Send a status."""
        self._bus.publish(inbox, b"", block, b"")

    def end(self, request: WaitingRequest, block: bytes, *, with_pending: bool) -> None:
        """Finish a request with a status."""
        if with_pending:
            left = request.bytes_left if request.bounded else 0
            block = statuses.with_pending(block, request.left, left)
        self._consumer.queue.finish(request)
        self.say(request.inbox, block)

    def end_all(self, block: bytes, *, with_pending: bool) -> None:
        """Finish every waiting request with a status."""
        for request in list(self._consumer.queue):
            self.end(request, block, with_pending=with_pending)

    def end_one_shots(self, block: bytes = statuses.NO_MESSAGES) -> None:
        """There is nothing more now, or ``block`` says what else it is: finish who asked not to wait.

        One that came while messages were on their way to the disk waits for these.
        """
        if not self._consumer.queue.has_one_shots:
            return
        durable_seq = self._consumer.stream.store.durable_seq
        for request in list(self._consumer.queue):
            if request.one_shot and request.seen_seq <= durable_seq:
                self.end(request, block, with_pending=False)

    def run_due(self, now_ns: int) -> None:
        """Expired requests get their 408, quiet ones a heartbeat, abandoned ones nothing.

        The time of one request is the end of all that do not wait: those that ``max_ack_pending``
        had kept hear it here.
        """
        state = self._consumer.state
        quiet: list[WaitingRequest] = []
        some_due = False
        # Those due beyond that are so in the next tick.
        for request, expired in islice(self._consumer.queue.due(now_ns), _DUE_PER_TICK):
            some_due = True
            if self._bus.resolve(request.inbox) is None:
                self._consumer.queue.finish(request)
            elif expired:
                self.end(request, statuses.REQUEST_TIMEOUT, with_pending=True)
            else:
                quiet.append(request)
        if some_due and not self._consumer.unread.holds:
            self.end_one_shots()
        for request in quiet:
            if request.waiting:
                position = (state.delivered_consumer, state.delivered_stream)
                self.say(request.inbox, statuses.heartbeat(*position))
