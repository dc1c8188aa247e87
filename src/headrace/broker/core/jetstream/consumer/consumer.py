"""One consumer: ties the delivery state, who gets the messages, the policy and the turns together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from .....api.consumers import ConsumerConfig
from .....api.times import parse_time
from .....errors import StoreReadError
from .....message import StoredRow
from .....subjects import SubjectFilter
from ...server_headers import with_place
from ..config.consumer import filter_of
from ..context import Context
from ..headers import statuses
from ..stream.stream import Stream
from ..tick.retry import Unread
from . import journal
from .acks.acks import Acks
from .delivery_state import DeliveryState
from .last_per_subject import Chosen
from .pending import PendingCount
from .pull.delivery_pass import Turn, TurnEnd
from .pull.pinning import Pinning
from .pull.policy import PinnedClient, make_policy
from .pull.pulls import Pulls
from .pull.queue import PullQueue
from .push.delivery_pass import PushTurn
from .push.push import Push
from .replay import OriginalReplay
from .start import choose_messages, safe_sequence, start_sequence
from .timer import Alarm

__all__ = ["Consumer"]

_NS: Final = 1_000_000_000
_SNAPSHOT_AT: Final = 64 * 1024  # bytes of deltas after which a snapshot replaces them
_PIN_ID_CHARS: Final = 22
_UNLIMITED: Final = 1 << 30
_UNREADABLE: Final = statuses.status((500, "the next message cannot be read now"))


class Consumer:
    """A pull consumer, or with ``push`` a push consumer. Made, restored and closed by the registry."""

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
        self.policy = make_policy(config, lambda: context.new_name(_PIN_ID_CHARS))
        self.pinning = Pinning(self, self.policy) if isinstance(self.policy, PinnedClient) else None
        self.queue = PullQueue(config.max_waiting, self.policy.lanes)
        self.pulls = Pulls(self)
        self.acks = Acks(self)
        self.alarm = Alarm(self)
        self.push: Push | None = Push(self) if config.deliver_subject else None
        self.turn = Turn(self) if self.push is None else PushTurn(self, self.push)
        self.chosen = Chosen(stream)
        self.unread = Unread(context, f"consumer {name!r} of stream {stream.name!r}")
        """Delivery waits here while the store cannot read what comes next."""
        self.replay: OriginalReplay | None = None
        self.last_delivered_ns = 0
        self._delta_bytes = 0
        self._dirty = False
        self._configure(config)

    # -- lifecycle

    def start(self) -> None:
        """Take up the position a new consumer starts from."""
        store = self.stream.store
        start = start_sequence(self.config, store, self.filter)
        if self.config.deliver_policy == "last_per_subject":
            chosen = choose_messages(store, self.filter)
            self.chosen.begin(chosen, fresh=True)
            start = chosen[0] if chosen else start
        self.state.reset(start)
        self._begin_replay()
        if self.push is not None:  # who asked for it hears that it exists, and then gets messages
            self.stream.hungry.add(self, None)
            self.context.appended[self.stream] = None
        self.alarm.arm()

    def restore(
        self, snapshot: bytes | None, deltas: Sequence[bytes], loose: Sequence[bytes] = ()
    ) -> None:
        """Take up what the journal says. Raises StoreFormatError.

        Without a snapshot it is where nothing is skipped; for ``loose`` see ``journal.restore``.
        """
        if snapshot is None:
            store = self.stream.store
            self.state.reset(safe_sequence(self.config, store, self.filter, self.created_ns))
            snapshot = self.snapshot()
        chosen = journal.restore(self.state, snapshot, deltas, self.wall_offset_ns(), loose)
        self.chosen.begin(chosen)
        if self.state.pending:
            self.stream.holding[self] = None
            if self.pinning is not None:
                self.pinning.begin_handover()
        self._begin_replay()
        self.alarm.arm()

    def reconfigure(self, config: ConsumerConfig) -> None:
        """Take an updated, checked configuration; waiting requests stay."""
        self.config = config
        self._configure(config)
        if isinstance(self.policy, PinnedClient):
            self.policy.timeout_ns = round(config.priority_timeout * _NS)
        if self.push is not None:
            self.push.configure(config)
        self.acks.give_up_exhausted()
        self.stream.hungry.discard(self)
        self.wake()
        self.alarm.arm()

    def restart_at(self, sequence: int) -> None:
        """Forget every delivery; the next one is the first message from ``sequence`` on."""
        self.state.reset(sequence)
        self.chosen.begin(())
        self.last_delivered_ns = self.acks.last_ns = 0
        self._begin_replay()
        self.stream.hungry.discard(self)
        self.wake()
        self.alarm.arm()

    def look_again(self) -> None:
        """Messages are back in the stream: deliver those that were passed over."""
        self.state.rewind()
        self.stream.hungry.discard(self)
        self.wake()
        self.alarm.arm()

    def close(self) -> None:
        """The consumer is gone: tell the waiting requests and stop."""
        self.pulls.end_all(statuses.CONSUMER_DELETED, with_pending=False)
        if self.push is not None:
            self.push.close()
        self.alarm.cancel()
        self.unread.cancel()
        context, stream = self.context, self.stream
        marks: tuple[dict[Any, None], ...] = (
            context.ready,
            context.later,
            context.settling,
            context.dirty_consumers,
            stream.holding,
            stream.blocked,
        )
        for mark in marks:
            mark.pop(self, None)
        stream.hungry.discard(self)

    def shut_down(self) -> None:
        """The server goes: tell the waiting requests what they did not get."""
        self.pulls.end_all(statuses.SERVER_SHUTDOWN, with_pending=True)
        self.alarm.cancel()
        self.unread.cancel()

    def _configure(self, config: ConsumerConfig) -> None:
        self.filter: SubjectFilter | None = filter_of(config)
        self.pending_count = PendingCount(self.stream, self.filter)
        until_ns = parse_time(config.pause_until or "")
        self.paused_until_ns = until_ns if until_ns > self.context.clock.now_ns() else 0
        state = self.state
        backoff_ns = tuple(round(pause * _NS) for pause in config.backoff)
        state.set_waits(round(config.ack_wait * _NS), backoff_ns)
        state.set_max_deliver(config.max_deliver)
        self.queue.max_waiting = config.max_waiting
        self._max_ack_pending = config.max_ack_pending if state.tracks else -1
        self.inactive_ns = round(config.inactive_threshold * _NS)
        self.alters_messages = config.headers_only or config.priority_policy == "pinned_client"
        self.acks.configure()

    def _begin_replay(self) -> None:
        if self.config.replay_policy == "original":
            self.replay = OriginalReplay(self)

    # -- delivering

    @property
    def has_takers(self) -> bool:
        """Whether somebody waits for messages: with requests, or on the deliver subject."""
        return self.queue.waiting > 0 if self.push is None else self.push.active

    def wake(self) -> None:
        """There may be something to deliver: ask for a turn."""
        if self.has_takers:
            self.context.ready[self] = None

    def try_again(self) -> None:
        """Something failed a while ago: give the retention what it has not taken, and have a turn."""
        if self.acks.unsettled:
            self.context.settling[self] = None
        self.wake()

    def deliver(self) -> None:
        """Take one turn, and arrange for what wakes the next.

        What the store cannot read now is not passed over: the consumer stays where it is.
        """
        clock = self.context.clock
        if not self.has_takers:
            return
        if self.is_paused(clock.now_ns()):
            self.pulls.end_one_shots()
            return
        now_ns = clock.monotonic_ns()
        if self.pinning is not None and self.pinning.holds(now_ns):
            return
        if self.unread.holds:
            self.pulls.end_one_shots(_UNREADABLE)
            return
        self.stream.expire()
        runs_before = len(self.state.runs)
        try:
            end = self.turn.run(now_ns)
        except StoreReadError as error:
            end = TurnEnd.UNREADABLE
            self.unread.failed(error, self.try_again)
            self.pulls.end_one_shots(statuses.unreadable(error))
        else:
            self.unread.worked()
        if self.pinning is not None:
            self.pinning.after_turn()
        if self.turn.delivered:
            self.alarm.last_active_ns = now_ns
            self.last_delivered_ns = clock.now_ns()
            if self.state.pending:
                self.stream.holding[self] = None
            elif not self.state.tracks:
                self.acks.delivered(self.state.runs[runs_before:])
            self.touch()
        self.acks.stalled = end is TurnEnd.STALLED
        # Requests that are left without a reason to wait for all stand by: nothing is there for them.
        if end in (TurnEnd.EXHAUSTED, TurnEnd.NO_REQUESTS) and self.queue.has_one_shots:
            self.pulls.end_one_shots()
        if self.has_takers:
            self._wait_for(end)
        self.alarm.arm()

    def _wait_for(self, end: TurnEnd) -> None:
        """Requests are left: be woken by what ended the turn."""
        if end is TurnEnd.BUDGET or (end is TurnEnd.NO_REQUESTS and self.turn.delivered):
            self.context.later[self] = None
        elif end is TurnEnd.BLOCKED:
            self.stream.blocked[self] = None
        elif end not in (TurnEnd.STALLED, TurnEnd.HELD, TurnEnd.UNREADABLE):
            # Requests that end with what is there, and redeliveries, wait for more than their filter.
            impatient = self.queue.has_one_shots or self.state.late > 0
            caught_up = end is TurnEnd.EXHAUSTED and not self.chosen
            self.stream.hungry.add(
                self,
                None if impatient else self.filter,
                self.state.next_seq if caught_up else 0,
            )

    def room(self) -> int:
        """How many messages may go out for the first time: by acks pending, and by the replay."""
        limit = self._max_ack_pending
        room = limit - len(self.state.pending) if limit > 0 else _UNLIMITED
        if self.replay is not None:
            due = self.replay.room(self.context.clock.monotonic_ns())
            if due is None:
                self.replay = None
            else:
                room = min(room, due)
        return room

    @property
    def is_full(self) -> bool:
        """Whether as many messages are pending as may be."""
        return 0 < self._max_ack_pending <= len(self.state.pending)

    def read(self, max_messages: int, max_bytes: int) -> list[StoredRow]:
        """The next messages to deliver for the first time; only durable ones."""
        store = self.stream.store
        next_seq = self.state.next_seq
        if next_seq < self.chosen.after:
            if self.chosen.count(self.state.delivered_stream):
                return self.chosen.read(max_messages)
            self.skip_to(self.chosen.after)
            next_seq = self.state.next_seq
        if next_seq > store.durable_seq:
            return []
        return store.rows(next_seq, self.filter, max_messages, max_bytes, store.durable_seq)

    def altered(self, headers: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """A message as this consumer's configuration wants it delivered."""
        if self.config.headers_only:
            size = b"Nats-Msg-Size: %d\r\n" % len(payload)
            return with_place(headers, size), b""
        return headers, payload

    def with_policy_header(self, headers: bytes) -> bytes:
        """A message's headers with what the priority policy adds."""
        line = self.policy.header()
        return with_place(headers, line) if line else headers

    # -- journal

    def touch(self) -> None:
        """The state changed: journal it with the next flush, which comes soon."""
        if not self._dirty:
            self._dirty = True
            self.context.dirty_consumers[self] = None
            self.context.gate.want_soon()

    def wall_offset_ns(self) -> int:
        """Wall-clock minus monotonic time."""
        clock = self.context.clock
        return clock.now_ns() - clock.monotonic_ns()

    def snapshot(self) -> bytes:
        """The whole state for the journal; the log starts anew."""
        self._delta_bytes = 0
        chosen = self.chosen.to_journal(self.state.delivered_stream)
        value = journal.encode_snapshot(self.state, self.wall_offset_ns(), chosen)
        self.state.clear_log()
        return value

    def take_changes(self) -> tuple[bytes, bool]:
        """What to journal since the last time: (value, whether it is a delta)."""
        self._dirty = False
        if self._delta_bytes > _SNAPSHOT_AT + 64 * len(self.state.pending):
            return self.snapshot(), False
        delta = journal.encode_delta(self.state, self.wall_offset_ns())
        self._delta_bytes += len(delta)
        self.state.clear_log()
        return delta, True

    # -- questions

    def is_paused(self, now_ns: int) -> bool:
        """Whether delivery is paused at this wall-clock time."""
        return self.paused_until_ns > now_ns

    def num_pending(self) -> int:
        """How many messages are still to be delivered for the first time."""
        state = self.state
        left = self.chosen.count(state.delivered_stream)
        return left + self.pending_count.value(max(state.next_seq, self.chosen.after))

    def advance_pending(self, pending: int) -> None:
        """A turn moved the position; ``pending`` is what is left."""
        if not self.chosen:
            self.pending_count.advance(pending, self.state.next_seq)

    def skip_to(self, next_seq: int) -> None:
        """Nothing before ``next_seq`` is left for this consumer."""
        if next_seq > self.state.next_seq:
            self.pending_count.moved(self.state.next_seq, next_seq)
            self.state.next_seq = next_seq

    def wants(self, subject: bytes) -> bool:
        """Whether a message on this subject is one for this consumer."""
        return self.filter is None or self.filter.matches(subject)

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether this consumer is not done with a message."""
        if not self.wants(subject):
            return False
        return stream_seq >= self.state.next_seq or stream_seq in self.state.pending
