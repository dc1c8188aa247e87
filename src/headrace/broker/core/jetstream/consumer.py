"""One consumer: ties the delivery state, the waiting requests, the policy and the turns together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ....api import names
from ....api.acks import ACK, IN_PROGRESS, NAK, NEXT, TERM
from ....api.consumers import ConsumerConfig
from ....api.times import parse_time
from ....message import StoredMessage
from ....subjects import SubjectFilter
from ..ports import Timer
from . import journal, statuses
from .ack_body import nak_delay_ns
from .api import required_level_too_high
from .consumer_start import choose_messages, filter_of, start_sequence
from .context import Context
from .delivery import DeliveryState
from .pending import PendingCount
from .policy import PinnedClient, make_policy
from .pullqueue import PullQueue, WaitingRequest
from .pullrequest import PIN_ID_MISMATCH, check_pull, parse_pull
from .stream import Stream
from .turn import Turn, TurnEnd

__all__ = ["Consumer"]

_NS: Final = 1_000_000_000
_PLAIN_ACKS: Final = frozenset({b"", ACK, b"+OK"})
_SNAPSHOT_AT: Final = 64 * 1024  # bytes of deltas after which a snapshot replaces them
_EVICT_EVERY_NS: Final = 1_000_000_000  # a full queue is searched for dead requests this often
_JITTER_MIN_NS: Final = 100_000_000
_JITTER_NS: Final = 900_000_000
_PIN_ID_CHARS: Final = 22


class Consumer:
    """A pull consumer. Made, restored and closed by the registry."""

    def __init__(
        self, context: Context, stream: Stream, name: str, config: ConsumerConfig, created_ns: int
    ) -> None:
        self.context = context
        self.stream = stream
        self.name = name
        self.key = f"{stream.name}/{name}"
        self.config = config
        self.created_ns = created_ns
        self.journaled = stream.config.storage == "file" and not config.mem_storage
        self.on_inactive: Callable[[Consumer], None] = lambda _consumer: None
        self.state = DeliveryState(start_seq=1, tracks=config.ack_policy != "none", ack_wait_ns=0)
        self.policy = make_policy(config, self._new_pin)
        self.queue = PullQueue(config.max_waiting, self.policy.lanes)
        self.turn = Turn(self)
        self.chosen: list[int] = []
        """Stream sequences to deliver before anything else, the next one last."""
        self.last_delivered_ns = 0
        self.last_acked_ns = 0
        self._timer: Timer | None = None
        self._timer_ns = 0
        self._last_active_ns = context.clock.monotonic_ns()
        self._acked_lately = False
        self._evicted_ns = 0
        self._stalled = False
        self._settle: list[int] = []
        self._delta_bytes = 0
        self._dirty = False
        self._configure(config)

    # -- lifecycle

    def start(self) -> None:
        """Take up the position a new consumer starts from."""
        store = self.stream.store
        if self.config.deliver_policy == "last_per_subject":
            self.chosen = choose_messages(store, self.filter)[::-1]
        start = self.chosen[-1] if self.chosen else start_sequence(self.config, store, self.filter)
        self.state.reset(start)
        self._arm()

    def restore(self, snapshot: bytes, deltas: list[bytes]) -> None:
        """Take up what the journal says. Raises StoreFormatError."""
        chosen = journal.restore(self.state, snapshot, deltas, self._wall_offset_ns())
        self.chosen = chosen[::-1]
        if self.state.pending:
            self.stream.holding[self] = None
        self._arm()

    def reconfigure(self, config: ConsumerConfig) -> None:
        """Take an updated, checked configuration; waiting requests stay."""
        old, self.config = self.config, config
        self._configure(config)
        if (old.priority_policy, old.priority_groups) != (
            config.priority_policy,
            config.priority_groups,
        ):
            self._change_policy()
        elif isinstance(self.policy, PinnedClient):
            self.policy.timeout_ns = round(config.priority_timeout * _NS)
        self.wake()
        self._arm()

    def close(self) -> None:
        """The consumer is gone: tell the waiting requests and stop."""
        self._end_all(statuses.CONSUMER_DELETED, with_pending=False)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for marks in (self.context.ready, self.context.later, self.context.settling):
            marks.pop(self, None)
        self.context.dirty_consumers.pop(self, None)
        for marks in (self.stream.hungry, self.stream.holding, self.stream.blocked):
            marks.pop(self, None)

    def shut_down(self) -> None:
        """The server goes: tell the waiting requests what they did not get."""
        self._end_all(statuses.SERVER_SHUTDOWN, with_pending=True)

    def _configure(self, config: ConsumerConfig) -> None:
        self.filter: SubjectFilter | None = filter_of(config)
        self.pending_count = PendingCount(self.stream, self.filter)
        self.paused_until_ns = parse_time(config.pause_until or "")
        state = self.state
        state.ack_wait_ns = round(config.ack_wait * _NS)
        state.backoff_ns = tuple(round(pause * _NS) for pause in config.backoff)
        state.max_deliver = config.max_deliver
        self.queue.max_waiting = config.max_waiting
        self._max_ack_pending = config.max_ack_pending if state.tracks else -1
        self._inactive_ns = round(config.inactive_threshold * _NS)
        self._settles = self.stream.config.retention != "limits"
        self.alters_messages = config.headers_only or config.priority_policy == "pinned_client"

    def _change_policy(self) -> None:
        waiting = list(self.queue)
        self.policy = make_policy(self.config, self._new_pin)
        self.queue = PullQueue(self.config.max_waiting, self.policy.lanes)
        for request in waiting:
            request.lane = self.policy.lane(request)
            self.queue.add(request)

    def _new_pin(self) -> str:
        return self.context.new_name(_PIN_ID_CHARS)

    # -- pulling

    def pull(self, reply: bytes, headers: bytes, body: bytes) -> None:
        """Take one pull request: let it wait, or answer it at once."""
        parsed = parse_pull(body)
        refusal = check_pull(parsed, self.config)
        if required_level_too_high(headers, self.context.options.api_level):
            refusal = statuses.status(names.REQUIRED_LEVEL)
        if refusal:
            self._status(reply, refusal)
            return
        now_ns = self.context.clock.monotonic_ns()
        self._last_active_ns = now_ns
        request = WaitingRequest(reply, parsed.request, now_ns, plain=parsed.plain)
        policy = self.policy
        if isinstance(policy, PinnedClient):
            if policy.pin_id and request.pin_id and request.pin_id != policy.pin_id:
                self._status(reply, PIN_ID_MISMATCH)
                return
            policy.pulled(request, now_ns)
        if request.no_wait and not self._may_wait_for_none(request):
            return
        if self.queue.is_full and not self._evict(now_ns):
            if not request.heartbeat_ns:  # with one, the client notices the silence
                self._status(reply, statuses.status(names.EXCEEDED_MAX_WAITING))
            return
        request.seen_seq = self.stream.store.last_seq
        request.lane = policy.lane(request)
        self.queue.add(request)
        self.wake()
        self._arm()

    def _may_wait_for_none(self, request: WaitingRequest) -> bool:
        """Whether a no-wait request joins the queue; False when it was answered instead."""
        if self in self.context.ready:
            self.context.ready.pop(self)
            self.deliver()
        available = self.num_pending() + len(self.state.redeliver)
        if not available and not request.expires_ns:
            self._status(request.inbox, statuses.NO_MESSAGES)
            return False
        if available and available < self.queue.wanted:
            self._status(request.inbox, statuses.status(names.REQUESTS_PENDING))
            return False
        return True

    def _evict(self, now_ns: int) -> bool:
        """Make room in a full queue by dropping requests nobody listens to any more."""
        if now_ns - self._evicted_ns < _EVICT_EVERY_NS and self._evicted_ns:
            return False
        self._evicted_ns = now_ns
        for request in list(self.queue):
            if self.context.bus.resolve(request.inbox) is None:
                self.queue.finish(request)
        return not self.queue.is_full

    def end_request(self, request: WaitingRequest, block: bytes, *, with_pending: bool) -> None:
        """Finish a request with a status."""
        if with_pending:
            left = request.bytes_left if request.bounded else 0
            block = statuses.with_pending(block, request.left, left)
        self.queue.finish(request)
        self._status(request.inbox, block)

    def _end_all(self, block: bytes, *, with_pending: bool) -> None:
        for request in list(self.queue):
            self.end_request(request, block, with_pending=with_pending)

    def _status(self, inbox: bytes, block: bytes) -> None:
        self.context.bus.publish(inbox, b"", block, b"")

    # -- delivering

    def wake(self) -> None:
        """There may be something to deliver: ask for a turn."""
        if self.queue.waiting:
            self.context.ready[self] = None

    def deliver(self) -> None:
        """Take one turn, and arrange for what wakes the next."""
        clock = self.context.clock
        if not self.queue.waiting or self.is_paused(clock.now_ns()):
            return
        now_ns = clock.monotonic_ns()
        self.stream.expire()
        end = self.turn.run(now_ns)
        if self.turn.delivered:
            self._last_active_ns = now_ns
            self.last_delivered_ns = clock.now_ns()
            if self.state.pending:
                self.stream.holding[self] = None
            self._touch()
        self._stalled = end is TurnEnd.STALLED
        if end is TurnEnd.EXHAUSTED and self.queue.has_one_shots:
            self._end_one_shots()
        if self.queue.waiting:
            if end is TurnEnd.BUDGET or (end is TurnEnd.NO_REQUESTS and self.turn.delivered):
                self.context.later[self] = None
            elif end is TurnEnd.BLOCKED:
                self.stream.blocked[self] = None
            if end is not TurnEnd.BUDGET:
                self.stream.hungry[self] = None
        self._arm()

    def _end_one_shots(self) -> None:
        durable_seq = self.stream.store.durable_seq
        for request in list(self.queue):
            if request.one_shot and request.seen_seq <= durable_seq:
                self.end_request(request, statuses.NO_MESSAGES, with_pending=False)

    def room(self) -> int:
        """How many more messages may be pending acknowledgement."""
        limit = self._max_ack_pending
        return limit - len(self.state.pending) if limit > 0 else 1 << 30

    def read(self, max_messages: int, max_bytes: int) -> list[StoredMessage]:
        """The next messages to deliver for the first time; only durable ones."""
        store = self.stream.store
        if self.chosen:
            return self._read_chosen(max_messages, max_bytes)
        state = self.state
        if state.next_seq > store.durable_seq:
            return []
        return store.read(state.next_seq, self.filter, max_messages, max_bytes, store.durable_seq)

    def _read_chosen(self, max_messages: int, max_bytes: int) -> list[StoredMessage]:
        """Messages chosen when the consumer was made, without those delivered since."""
        store, chosen = self.stream.store, self.chosen
        while chosen and chosen[-1] <= self.state.delivered_stream:
            chosen.pop()
        found: list[StoredMessage] = []
        for sequence in reversed(chosen):
            message = store.get(sequence)
            if message is not None:
                found.append(message)
                if len(found) >= max_messages:
                    break
        if not found:
            chosen.clear()
            return self.read(max_messages, max_bytes)
        return found

    def altered(self, headers: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """A message as this consumer's configuration wants it delivered."""
        if self.config.headers_only:
            size = b"Nats-Msg-Size: %d\r\n" % len(payload)
            return statuses.with_headers(headers, size), b""
        return headers, payload

    def with_policy_header(self, headers: bytes) -> bytes:
        """A message's headers with what the priority policy adds."""
        line = self.policy.header()
        return statuses.with_headers(headers, line) if line else headers

    # -- acknowledging

    def acknowledge(self, stream_seq: int, consumer_seq: int, body: bytes, reply: bytes) -> None:
        """Take one acknowledgement of any kind."""
        if not 0 < stream_seq < self.state.next_seq and stream_seq not in self.state.pending:
            return  # never delivered, or reset since: the public server does not answer either
        if body in _PLAIN_ACKS or body.startswith(TERM):
            self._done_with(stream_seq, consumer_seq)
        elif body.startswith(NAK):
            now_ns = self.context.clock.monotonic_ns()
            if self.state.refuse(stream_seq, consumer_seq, now_ns, nak_delay_ns(body)):
                self._after_refusal()
        elif body.startswith(IN_PROGRESS):
            self.state.in_progress(stream_seq, self.context.clock.monotonic_ns())
        elif body.startswith(NEXT):
            self._done_with(stream_seq, consumer_seq)
            if reply:
                self.pull(reply, b"", body[len(NEXT) :])
            return
        self._acked_lately = True
        if reply:
            self.context.gate.reply(reply, b"")

    def _done_with(self, stream_seq: int, consumer_seq: int) -> None:
        if self.config.ack_policy == "all":
            finished = self.state.acknowledge_all(stream_seq, consumer_seq)
        else:
            finished = [stream_seq] if self.state.acknowledge(stream_seq) else []
        if finished:
            if self._settles:
                self._settle += finished
                self.context.settling[self] = None
            self._freed()

    def _after_refusal(self) -> None:
        self.state.exhausted.clear()
        self._touch()
        self.wake()
        self._arm()

    def _freed(self) -> None:
        """Pending messages became fewer."""
        self._touch()
        if self._stalled:
            self._stalled = False
            self.wake()

    def settle(self) -> None:
        """Tell the stream's retention what this consumer is done with."""
        finished, self._settle = self._settle, []
        self.stream.retention.acknowledged(self, finished)

    def forget(self, stream_seqs: Sequence[int]) -> None:
        """Messages left the stream: deliveries of them are over."""
        self._forgotten(self.state.forget(stream_seqs))

    def forget_below(self, stream_seq: int) -> None:
        """Everything before ``stream_seq`` left the stream."""
        self._forgotten(self.state.forget_below(stream_seq))

    def forget_missing(self) -> None:
        """Some messages left the stream: find out which."""
        get = self.stream.store.get
        self._forgotten(self.state.forget([s for s in list(self.state.pending) if get(s) is None]))

    def _forgotten(self, stream_seqs: list[int]) -> None:
        if stream_seqs:
            self._freed()
        if not self.state.pending:
            self.stream.holding.pop(self, None)

    # -- journal

    def _touch(self) -> None:
        """The state changed: journal it with the next flush, which comes soon."""
        if not self._dirty:
            self._dirty = True
            self.context.dirty_consumers[self] = None
            self.context.gate.want_soon()

    def _wall_offset_ns(self) -> int:
        clock = self.context.clock
        return clock.now_ns() - clock.monotonic_ns()

    def snapshot(self) -> bytes:
        """The whole state for the journal; the log starts anew."""
        self._delta_bytes = 0
        value = journal.encode_snapshot(self.state, self._wall_offset_ns(), self.chosen[::-1])
        self.state.clear_log()
        return value

    def take_changes(self) -> tuple[bytes, bool]:
        """What to journal since the last time: (value, whether it is a delta)."""
        self._dirty = False
        if self._delta_bytes > _SNAPSHOT_AT + 64 * len(self.state.pending):
            return self.snapshot(), False
        delta = journal.encode_delta(self.state, self._wall_offset_ns())
        self._delta_bytes += len(delta)
        self.state.clear_log()
        return delta, True

    # -- time

    def is_paused(self, now_ns: int) -> bool:
        """Whether delivery is paused at this wall-clock time."""
        return self.paused_until_ns > now_ns

    def _arm(self) -> None:
        """Have the one timer run no later than the earliest thing to do."""
        clock = self.context.clock
        times = [self.queue.next_time_ns(), self.state.next_deadline_ns()]
        if self.paused_until_ns:
            times.append(self.paused_until_ns - self._wall_offset_ns())
        if self._inactive_ns:
            times.append(self._inactive_at_ns())
        if isinstance(self.policy, PinnedClient) and self.policy.pin_id:
            times.append(self.policy.deadline_ns)
        earliest = min((at for at in times if at is not None), default=None)
        if earliest is None or (self._timer is not None and self._timer_ns <= earliest):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = max(earliest, clock.monotonic_ns())
        self._timer = self.context.timers.call_at(self._timer_ns, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ns = self.context.clock.monotonic_ns()
        self._requests_due(now_ns)
        if self.state.expire(now_ns):
            self.wake()
        if self.state.exhausted:
            self.state.exhausted.clear()
            self._freed()
        if isinstance(self.policy, PinnedClient) and self.policy.expire(now_ns):
            self.wake()
        if self.paused_until_ns and not self.is_paused(self.context.clock.now_ns()):
            self.paused_until_ns = 0
            self.wake()
        if (
            self._inactive_ns
            and self._inactive_at_ns() <= now_ns
            and not self._still_in_use(now_ns)
        ):
            self.on_inactive(self)
            return
        self._arm()

    def _requests_due(self, now_ns: int) -> None:
        """Expired requests get their 408, quiet ones a heartbeat, abandoned ones nothing."""
        for request, expired in self.queue.due(now_ns):
            if self.context.bus.resolve(request.inbox) is None:
                self.queue.finish(request)
            elif expired:
                self.end_request(request, statuses.REQUEST_TIMEOUT, with_pending=True)
            else:
                state = self.state
                block = statuses.heartbeat(state.delivered_consumer, state.delivered_stream)
                self._status(request.inbox, block)

    def _inactive_at_ns(self) -> int:
        return self._last_active_ns + self._inactive_ns + _JITTER_MIN_NS

    def _still_in_use(self, now_ns: int) -> bool:
        """Whether an inactive consumer stays a while: it has requests, acks, or time left to ack."""
        if self.queue.waiting or self._acked_lately:
            self._acked_lately = False
            self._last_active_ns = now_ns
            return True
        latest_ns = max((entry[1] for entry in self.state.pending.values()), default=0)
        if latest_ns + self._inactive_ns > now_ns and self.state.pending:
            self._last_active_ns = latest_ns
            return True
        return False

    # -- questions

    def num_pending(self) -> int:
        """How many messages are still to be delivered for the first time."""
        state = self.state
        left = sum(1 for sequence in self.chosen if sequence > state.delivered_stream)
        if left:
            return left + self.pending_count.value(self.chosen[0] + 1)
        return self.pending_count.value(state.next_seq)

    def advance_pending(self, pending: int) -> None:
        """A turn moved the position; ``pending`` is what is left."""
        if not self.chosen:
            self.pending_count.advance(pending, self.state.next_seq)

    def wants(self, subject: bytes) -> bool:
        """Whether a message on this subject is one for this consumer."""
        return self.filter is None or self.filter.matches(subject)

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether this consumer is not done with a message."""
        if not self.wants(subject):
            return False
        return stream_seq >= self.state.next_seq or stream_seq in self.state.pending
