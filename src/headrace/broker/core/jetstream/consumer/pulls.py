"""Pull requests as they arrive at a consumer: read, refused in the order of the public server, and ended.

``Pinning`` is what happens around the pin that the policy decides on, in the six steps of the
specification of priority groups: deliveries stop until the messages in flight are completed, the next
client is pinned with the next message, an advisory tells, and every waiting request with another id is
ended. With the operator's ``pin_handover = "immediate"`` the first step is left out, as nats-server does,
and requests with another id are ended when it is their turn.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import msgspec

from .....api import names
from .....api.base import DocumentError, decode
from .....api.consumers import ConsumerConfig, PullRequest
from .....errors import StoreReadError
from .....quantities import go_duration_text
from ...ports import Origin
from ..config.sizes import check_ranges, check_request_size, read_number
from ..headers import (
    NO_MESSAGES,
    REQUEST_TIMEOUT,
    WRONG_PIN_ID,
    bad_request,
    heartbeat,
    required_level_too_high,
    status,
    telling_pending,
    unreadable,
)
from .delivery_state import DeliveryState
from .pull_queue import EndRequest, PinnedClient, Policy, PullQueue, PullTerms, WaitingRequest
from .view import ConsumerView

_NS: Final = 1_000_000_000
_PRIORITY_MAX: Final = 9
_REMEMBERED_BYTES_MAX: Final = 256
_REMEMBERED_MAX: Final = 64  # bodies of one consumer's requests: clients repeat themselves
PIN_ID_MISMATCH: Final = status(names.PIN_ID_MISMATCH)
_EVICT_EVERY_NS: Final = 1_000_000_000  # a full queue is searched for dead requests this often
_DUE_PER_TICK: Final = 1024
_TOO_MANY: Final = status(names.EXCEEDED_MAX_WAITING)
_REQUESTS_PENDING: Final = status(names.REQUESTS_PENDING)
_PUSH_BASED: Final = status(names.CONSUMER_IS_PUSH)
_LEVEL: Final = status(names.REQUIRED_LEVEL)


class ParsedPull(msgspec.Struct, frozen=True):
    """A pull request, or the status that refuses it. ``plain``: the body was no JSON."""

    request: PullRequest
    plain: bool = False
    refusal: bytes = b""


def _parse_pull(body: bytes) -> ParsedPull:
    """Read a body: empty, a number, a JSON object; any other text asks for one message."""
    text = body.strip()
    if not text.startswith(b"{"):
        batch = read_number(text.removeprefix(b"+"))
        batch = 1 if batch is None else batch
        return ParsedPull(PullRequest(batch=batch), plain=True)
    try:
        check_request_size(text)
        request = check_ranges(decode(text, PullRequest))
    except DocumentError as error:
        return ParsedPull(PullRequest(), refusal=bad_request(str(error)))
    if request.idle_heartbeat > 0 and 2 * request.idle_heartbeat > request.expires:
        return ParsedPull(request, refusal=bad_request("heartbeat value too large"))
    return ParsedPull(request)


def _check_pull(parsed: ParsedPull, config: ConsumerConfig) -> bytes:
    """The status that refuses a request on a consumer with this configuration, or ``b""``."""
    request = parsed.request
    if parsed.refusal:
        return parsed.refusal
    if 0 < config.max_batch < request.batch:
        return status((409, f"Exceeded MaxRequestBatch of {config.max_batch}"))
    if 0 < config.max_expires < request.expires:
        limit = go_duration_text(round(config.max_expires * _NS))
        return status((409, f"Exceeded MaxRequestExpires of {limit}"))
    if 0 < config.max_bytes < request.max_bytes:
        return status((409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}"))
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy != "overflow":
        return bad_request("Not a Overflow Priority consumer")
    if request.id and policy != "pinned_client":
        return bad_request("Not a Pinned Client Priority consumer")
    if not 0 <= request.priority <= _PRIORITY_MAX:
        return bad_request("Priority must be between 0 and 9")
    if policy != "none" and not parsed.plain:
        if not request.group:
            return bad_request("Priority Group missing")
        if request.group not in config.priority_groups:
            return bad_request("Invalid Priority Group")
    return b""


class Handover:
    """The wait between two pinned clients: the first finishes what it has in hand.

    A message in hand was delivered and is neither acknowledged, terminated nor refused, nor out of time.
    Nobody waits longer than the consumer's ack wait (the longest of its backoff), counted from the loss
    of the pin: progress reports may prolong a message's time, but not the handover.
    """

    __slots__ = ("_in_hand", "until_ns")

    def __init__(self, state: DeliveryState, now_ns: int) -> None:
        self._in_hand = state.in_hand()
        self.until_ns = now_ns + max((state.ack_wait_ns, *state.backoff_ns))
        """When it ends at the latest; a reading of the monotonic clock."""

    def is_over(self, state: DeliveryState, now_ns: int) -> bool:
        """Whether the next client may be pinned. Each message is looked at once when it is done."""
        in_hand = self._in_hand
        if now_ns >= self.until_ns:
            in_hand.clear()
        while in_hand and not state.is_in_hand(in_hand[-1]):
            in_hand.pop()
        return not in_hand


class Pinning:
    """See the module. Times are readings of the monotonic clock."""

    def __init__(
        self,
        consumer: ConsumerView,
        policy: PinnedClient,
        queue: PullQueue,
        end_request: EndRequest,
    ) -> None:
        self._consumer = consumer
        self._policy = policy
        self._queue = queue
        self._end_request = end_request
        self._drains = consumer.context.options.pin_handover == "drain"
        self._handover: Handover | None = None
        self._news: list[tuple[str, dict[str, Any] | None]] = []
        self._client: dict[str, Any] | None = None
        policy.on_pinned = self._pinned

    def let_go(self) -> None:
        """The consumer is closed: there is nobody to pin."""
        self._policy.on_pinned = lambda _origin: None

    @property
    def _now_ns(self) -> int:
        return self._consumer.context.clock.monotonic_ns()

    # -- requests

    def admits(self, request: WaitingRequest, now_ns: int) -> bool:
        """A pull arrived; False when its id is not that of the pin.

        During a handover no id is right. Without a pin and a handover a request with an id waits.
        """
        policy = self._policy
        if request.pin_id and request.pin_id != policy.pin_id:
            return not policy.pin_id and not self.holds(now_ns)
        policy.pulled(request, now_ns)
        return True

    def holds(self, now_ns: int) -> bool:
        """Whether deliveries wait for what the client before has in hand."""
        handover = self._handover
        if handover is not None and handover.is_over(self._consumer.state, now_ns):
            self._handover = None
        return self._handover is not None

    # -- losing the pin

    def unpin(self, reason: str) -> None:
        """Remove the pin, if a client has it, and tell why: ``admin`` or ``timeout``."""
        consumer, policy = self._consumer, self._policy
        client, self._client = self._client, None
        consumer.context.advisories.unpinned(consumer, reason, client)
        if policy.pin_id:
            policy.pin_id = ""
            self.begin_handover()
        consumer.wake()
        consumer.timer.arm()

    def begin_handover(self) -> None:
        """The client before is gone, by order, by silence or by a restart: let it finish first."""
        if self._drains:
            handover = Handover(self._consumer.state, self._now_ns)
            if not handover.is_over(self._consumer.state, self._now_ns):
                self._handover = handover

    # -- giving it

    def _pinned(self, origin: Origin | None) -> None:
        policy = self._policy
        # Owners tell their times apart by it, so a later one is never that of before, or less.
        policy.pinned_ns = max(self._consumer.context.clock.now_ns(), policy.pinned_ns + 1)
        self._client = None if origin is None else origin.describe()
        self._news.append((self._policy.pin_id, self._client))

    def after_pass(self) -> None:
        """Messages went out: tell which client was pinned with them, and end the requests of others."""
        news, self._news = self._news, []
        for pin_id, client in news:
            self._consumer.context.advisories.pinned(self._consumer, pin_id, client)
        pin_id = self._policy.pin_id
        if news and pin_id and self._drains:
            for request in list(self._queue.in_lane(0)):
                if request.pin_id != pin_id:
                    self._end_request(request, WRONG_PIN_ID)

    # -- time

    def next_time_ns(self) -> int | None:
        if self._handover is not None:
            return self._handover.until_ns
        return self._policy.deadline_ns if self._policy.pin_id else None

    def run_due(self, now_ns: int) -> None:
        """The pin's time is over, or that of a handover."""
        if self._handover is not None:
            if not self.holds(now_ns):
                self._consumer.wake()
        elif self._policy.is_late(now_ns):
            self.unpin("timeout")


class Pulls:
    """The reception of one consumer's pull requests."""

    def __init__(self, consumer: ConsumerView, queue: PullQueue, policy: Policy) -> None:
        self._consumer = consumer
        self._bus = consumer.context.bus
        self._queue = queue
        self._policy = policy
        self._evicted_ns = -_EVICT_EVERY_NS
        self._known: dict[bytes, tuple[PullTerms, bytes]] = {}
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
        terms, refusal = self._known.get(body) or self._read(body)
        if headers and required_level_too_high(headers, consumer.context.options.api_level):
            refusal = _LEVEL
        if refusal:
            self.say(reply, refusal)
            return
        now_ns = consumer.context.clock.monotonic_ns()
        consumer.inactivity.last_active_ns = now_ns
        request = WaitingRequest(reply, terms, now_ns, origin)
        if self.pinning is not None and not self.pinning.admits(request, now_ns):
            self.say(reply, PIN_ID_MISMATCH)
            return
        try:
            if terms.no_wait and not self._may_join(request):
                return
        except StoreReadError as error:  # it cannot be counted now
            self.say(reply, unreadable(error))
            return
        if queue.is_full and not self._evict(now_ns):
            if not terms.heartbeat_ns:  # with one, the client notices the silence
                self.say(reply, _TOO_MANY)
            return
        if terms.no_wait:
            request.seen_seq = consumer.stream.store.last_seq
        request.lane = self._policy.lane(request)
        queue.add(request)
        if request.expires_ns and request.expires_ns < now_ns:  # a time that has passed
            self.end(request, REQUEST_TIMEOUT)
        consumer.wake()  # and the end of the pass that follows arms the timer

    def configure(self) -> None:
        """The consumer's configuration is another: requests are to be checked against it."""
        self._known.clear()

    def _read(self, body: bytes) -> tuple[PullTerms, bytes]:
        """What a request asks for, and the status that refuses it, or ``b""``."""
        parsed, config = _parse_pull(body), self._consumer.config
        refusal = _PUSH_BASED if config.deliver_subject else _check_pull(parsed, config)
        found = PullTerms(parsed.request, plain=parsed.plain), refusal
        if len(body) <= _REMEMBERED_BYTES_MAX:
            if len(self._known) >= _REMEMBERED_MAX:
                self._known.clear()
            self._known[body] = found
        return found

    def _may_join(self, request: WaitingRequest) -> bool:
        """Whether a no-wait request joins the queue; False when it was answered instead."""
        consumer, queue = self._consumer, self._queue
        consumer.deliver_at_once()  # earlier requests are served first
        available = consumer.backlog.num_pending() + consumer.state.late
        if available < queue.wanted:
            self.drop_abandoned()
        if not available and not request.expires_ns:
            self.say(request.inbox, NO_MESSAGES)
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
            block = telling_pending(block, request.left, left)
        self._queue.finish(request)
        self.say(request.inbox, block)

    def end_all(self, block: bytes, *, with_pending: bool) -> None:
        for request in list(self._queue):
            self.end(request, block, with_pending=with_pending)

    def end_one_shots(self, block: bytes = NO_MESSAGES) -> None:
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
                self.end(request, REQUEST_TIMEOUT)
            else:
                quiet.append(request)
        if some_due and not self._consumer.unread.holds:
            self.end_one_shots()
        for request in quiet:
            if request.waiting:
                position = (state.delivered_consumer, state.delivered_stream)
                self.say(request.inbox, heartbeat(*position))
