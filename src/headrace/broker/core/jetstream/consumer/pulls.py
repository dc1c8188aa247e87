"""Pull requests as they arrive at a consumer: read, refused in the order of the public server, and ended."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from .....api import names
from .....api.base import DocumentError, decode
from .....api.consumers import ConsumerConfig, PullRequest
from .....errors import StoreReadError
from .....quantities import go_duration_text
from ...ports import Origin
from ..config.sizes import check_ranges, check_request_size, read_number
from ..headers import required_level_too_high
from ..statuses import (
    NO_MESSAGES,
    REQUEST_TIMEOUT,
    bad_request,
    heartbeat,
    status,
    telling_pending,
    unreadable,
)
from .pinning import Pinning
from .priority_policies import PinnedClient, Policy
from .pull_queue import PullQueue, PullTerms, WaitingRequest
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
