"""One consumer: puts its parts together, arranges what wakes it, and journals what changed."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .....api.consumers import ConsumerConfig
from .....api.times import parse_time
from .....errors import StoreReadError
from .....identity import MessageIdentity, Sameness, compare
from .....snapshots.contents import ConsumerState
from .....subjects import SubjectFilter
from ..context import Context
from ..statuses import CONSUMER_DELETED, SERVER_SHUTDOWN, status, unreadable
from ..tick.retry import Unread
from . import journal
from .acks import Acks
from .backlog import Backlog, ReadTogether, safe_sequence, start_sequence
from .delivery_pass import DeliveryPass, PassEnd, Recipients, Sender
from .delivery_state import DeliveryState, Entry
from .priority_policies import make_policy
from .pull_queue import PullQueue
from .pull_recipients import PullRecipients
from .pulls import Pulls
from .push import Push, PushRecipients
from .timer import ConsumerTimer, Inactivity, Pause

if TYPE_CHECKING:
    from ..stream.stream import Stream

_NS: Final = 1_000_000_000
_SNAPSHOT_AT: Final = 64 * 1024  # bytes of deltas after which a snapshot replaces them
_PIN_ID_CHARS: Final = 22
_UNREADABLE: Final = status((500, "the next message cannot be read now"))


class ConsumerMarks:
    """What is to be done for the consumers of an engine, which works through it once per tick."""

    def __init__(self) -> None:
        self.ready: dict[Consumer, None] = {}
        """Those that may have something to deliver, in the order they became so."""
        self.later: dict[Consumer, None] = {}
        """Those whose delivery pass ended with work left: they are ready again in the next tick."""
        self.to_report: dict[Consumer, None] = {}
        """Those with acks the stream's retention has not heard of."""
        self.dirty: dict[Consumer, None] = {}
        """Those whose state changed since it was last journaled."""
        self.new: dict[Consumer, None] = {}
        """Those made since the last flush began."""
        self.reads = ReadTogether()
        self.forgotten: dict[Consumer, list[Entry]] = {}
        """Deliveries that are over as their messages left the stream, since the last flush began."""


class Consumer:
    """A pull consumer, or with ``push`` a push consumer. Made, restored and closed by the registry."""

    def __init__(
        self,
        context: Context,
        stream: Stream,
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        marks: ConsumerMarks,
    ) -> None:
        self.context = context
        self._marks = marks
        self.stream = stream
        self.name = name
        self.key = f"{stream.name}/{name}"
        self.config = config
        self.created_ns = created_ns
        self.journaled = stream.config.storage == "file" and not config.mem_storage
        self.on_inactive: Callable[[Consumer], None] = lambda _consumer: None
        self.state = DeliveryState(start_seq=1, tracks=config.ack_policy != "none", ack_wait_ns=0)
        self.backlog = Backlog(stream, self.state, context.clock, marks.reads, self.wake)
        self.unread = Unread(context, f"consumer {name!r} of stream {stream.name!r}")
        """Delivery waits here while the store cannot read what comes next."""
        self.timer = ConsumerTimer(context.clock, context.timers)
        self.inactivity = Inactivity(
            context.clock,
            self.state,
            is_listened=self._is_listened,
            is_awaited=None if config.deliver_subject else self._is_awaited,
            end=self._end_inactive,
        )
        self.pause = Pause(context.clock, self._pause_ended)
        self.policy = make_policy(config, lambda: context.new_name(_PIN_ID_CHARS))
        self.queue = PullQueue(config.max_waiting, self.policy.lanes, merged=self.policy.merged)
        self.pulls = Pulls(self, self.queue, self.policy)
        self.pinning = self.pulls.pinning
        self.acks = Acks(self, self.pulls.receive)
        self.push = Push(self, self.acks) if config.deliver_subject else None
        self.delivery = self._make_delivery()
        self.last_delivered_ns = 0
        self._delta_bytes = 0
        self._is_dirty = False
        parts = (self.push, self.pulls, self.acks, self.backlog, self.pinning, self.pause)
        self.timer.parts = [part for part in (*parts, self.inactivity) if part is not None]
        self._configure(config)

    def _make_delivery(self) -> DeliveryPass:
        sender = Sender(self)
        recipients: Recipients
        if self.push is not None:
            recipients = PushRecipients(self, sender, self.push)
        else:
            recipients = PullRecipients(self, sender, self.queue, self.policy, self.pulls.end)
        return DeliveryPass(self, sender, recipients, self.acks.forget)

    # -- lifecycle

    def start(self) -> None:
        """Take up the position a new consumer starts from."""
        store, filter = self.stream.store, self.filter
        start = start_sequence(self.config, store, filter)
        if self.config.deliver_policy == "last_per_subject":
            lasts = store.lasts(filter)
            self.backlog.last_per_subject.begin(lasts, fresh=True)
            start = lasts[0] if lasts else start
        self.state.reset(start)
        if start == store.last_seq + 1:
            self.state.delivered_stamp_ns = store.state.last_ns
        self.backlog.begin_replay()
        if self.push is not None:  # the answer to its creation goes out before messages do
            self.stream.waiters.add(self, None)
            self.stream.wake_after_flush()
        self.timer.arm()

    def restore(
        self, snapshot: bytes | None, deltas: Sequence[bytes], loose: Sequence[bytes] = ()
    ) -> None:
        """Take up what the journal says; ``resume`` goes on from there. Raises StoreFormatError.

        Without a snapshot the consumer goes on where nothing is skipped. ``loose`` is explained at
        ``journal.restore``.
        """
        if snapshot is None:
            store = self.stream.store
            self.state.reset(safe_sequence(self.config, store, self.filter, self.created_ns))
            snapshot = self.snapshot()
        now_ns = self.context.clock.now_ns()
        lasts = journal.restore(
            self.state,
            snapshot,
            deltas,
            self._wall_offset_ns(),
            loose,
            latest_ns=now_ns + max(self.state.ack_wait_ns, *self.state.backoff_ns, 0),
            lead_ns=max(self.stream.store.state.last_ns - now_ns, 0),
        )
        last_seq = self.stream.store.last_seq
        self.backlog.last_per_subject.begin([each for each in lasts if each <= last_seq])

    def reconcile(self) -> tuple[str, bool]:
        """Follow a stream that has not everything that ``restore`` speaks of; call it before ``resume``.

        Returns what is worth a warning, if anything, and whether the state has changed. After a power cut
        the journal may be newer than the messages, unless these are synced first; after a kill it may be
        older than a removal.
        """
        state, store = self.state, self.stream.store
        stood, warning = state.delivered_stream, ""
        try:
            end = self._same_until()
            there = store.present(sorted(s for s in state.pending if s <= end))
        except StoreReadError:
            return "", False  # what cannot be read now is delivered later, or not found then
        if end < stood:
            warning = (
                f"consumer {self.name!r} had been given messages up to {stood}, and the stream has "
                f"lost those after {end}: it goes on there, with new messages of these sequences"
            )
            state.put_back(end)
        gone = state.pending.keys() - set(there)
        state.forget(sorted(gone))
        return warning, bool(warning or gone)

    def _same_until(self) -> int:
        """Up to where the stream has what this consumer was given. Raises StoreReadError."""
        state, store, name = self.state, self.stream.store, self.stream.name
        stood, stamp_ns, last_seq = state.delivered_stream, state.delivered_stamp_ns, store.last_seq
        if not (state.delivered_consumer or stamp_ns):
            return stood  # it was given nothing, and may be to start with what is still to come
        if not stamp_ns:
            return min(stood, last_seq)
        last = MessageIdentity(name, last_seq, store.state.last_ns)
        if last[1:] == (stood, stamp_ns):
            return stood
        rows = store.rows(stood, None, 1, 1, last_seq)
        found = MessageIdentity(name, rows[0][0], rows[0][4]) if rows else None
        if compare(MessageIdentity(name, stood, stamp_ns), found, last) is not Sameness.OTHER:
            return stood
        # What came after the loss is newer than what it was given.
        return max(0, min(stood - 1, last_seq, store.sequence_at(stamp_ns + 1) - 1))

    def resume(self) -> None:
        """Deliver, and count the time that deliveries have."""
        state = self.state
        if state.pending or state.dead:
            self.stream.holding[self] = None
        if state.dead:
            self.unread.attempt(self._forget_gone_dead)
        if state.pending and self.pinning is not None:
            self.pinning.begin_handover()
        self.backlog.begin_replay()
        self.timer.arm()

    def _forget_gone_dead(self) -> None:
        """Messages that were given up may have left as the server stopped. Raises StoreReadError."""
        dead = self.state.dead
        if self.state.forget(dead.keys() - self.stream.store.present(sorted(dead))):
            self.touch()

    def reconfigure(self, config: ConsumerConfig) -> None:
        """Take an updated, checked configuration; waiting requests stay."""
        self.config = config
        self._configure(config)
        self.policy.configure(config)
        if self.push is not None:
            self.push.configure(config)
        self.acks.give_up_exhausted()
        self.stream.waiters.discard(self)
        self.wake()
        self.timer.arm()

    def restart_at(self, sequence: int) -> None:
        """Forget every delivery; the next one is the first message from ``sequence`` on."""
        self.state.reset(sequence)
        self.backlog.last_per_subject.begin(())
        self.last_delivered_ns = self.acks.last_ns = 0
        self.backlog.begin_replay()
        self.stream.waiters.discard(self)
        self.wake()
        self.timer.arm()

    def look_again(self) -> None:
        """Messages are back in the stream: deliver those that were passed over."""
        self.state.rewind()
        self.stream.waiters.discard(self)
        self.wake()
        self.timer.arm()

    def close(self) -> None:
        """The consumer is gone: tell the waiting requests and stop."""
        self.pulls.end_all(CONSUMER_DELETED, with_pending=False)
        if self.push is not None:
            self.push.close()
        self.timer.close()
        self.backlog.close()
        self.unread.cancel()
        marks, stream = self._marks, self.stream
        entries: tuple[MutableMapping[Any, None], ...] = (
            marks.ready,
            marks.later,
            marks.to_report,
            marks.dirty,
            stream.holding,
            stream.blocked,
        )
        for entry in entries:
            entry.pop(self, None)
        stream.waiters.discard(self)

    def let_go(self) -> None:
        """Drop the parts of a closed consumer, a tick later: they know it, and nobody else knows them.

        They are freed at once so; what only the garbage collector finds may stay for hours.
        """
        self.pulls.let_go()
        if self.push is not None:
            self.push.let_go()
        self.push = None
        del self.pulls, self.pinning, self.acks, self.delivery
        del self.backlog, self.timer, self.inactivity, self.pause

    def shut_down(self) -> None:
        """The server goes: tell the waiting requests what they did not get."""
        self.pulls.end_all(SERVER_SHUTDOWN, with_pending=True)
        self.timer.cancel()
        self.unread.cancel()

    def _configure(self, config: ConsumerConfig) -> None:
        self.pause.set(parse_time(config.pause_until or ""))
        backoff_ns = tuple(round(pause * _NS) for pause in config.backoff)
        self.state.set_waits(round(config.ack_wait * _NS), backoff_ns)
        self.state.set_max_deliver(config.max_deliver)
        self.backlog.configure(config)
        self.queue.max_waiting = config.max_waiting
        self.inactivity.threshold_ns = round(config.inactive_threshold * _NS)
        self.acks.configure()
        self.pulls.configure()

    # -- what only time decides

    def _is_listened(self) -> bool:
        return self.push is not None and self.push.active

    def _is_awaited(self) -> bool:
        self.pulls.drop_abandoned()
        return self.queue.waiting > 0

    def _end_inactive(self) -> None:
        try:
            self.on_inactive(self)
        except StoreReadError as error:  # it stays as long again
            self.inactivity.last_active_ns = self.context.clock.monotonic_ns()
            self.unread.failed(error, self.try_again)

    def _pause_ended(self, until_ns: int) -> None:
        self.context.advisories.paused(self, until_ns)
        self.wake()

    # -- delivering

    @property
    def has_recipients(self) -> bool:
        """Whether somebody waits for messages: with requests, or on the deliver subject."""
        return self.queue.waiting > 0 if self.push is None else self.push.active

    def wake(self) -> None:
        """There may be something to deliver: ask for a delivery pass."""
        if self.has_recipients:
            self._marks.ready[self] = None

    def try_again(self) -> None:
        """Something failed a while ago: tell the retention what it missed, and deliver."""
        if self.acks.has_unreported:
            self.report_later()
        self.wake()

    def deliver_at_once(self) -> None:
        """Deliver now, unless that was done in this tick already and nothing has changed."""
        if self._marks.ready.pop(self, False) is None:
            self.deliver()

    def deliver(self) -> None:
        """Make one delivery pass, and arrange for what wakes the next."""
        if self.has_recipients:
            try:
                self._deliver()
            finally:
                self.timer.arm()

    def _deliver(self) -> None:
        """What the store cannot read now is not passed over: the consumer stays where it is."""
        clock = self.context.clock
        if self.pause.until_ns and self.is_paused(clock.now_ns()):
            self.pulls.end_one_shots()
            return
        now_ns = clock.monotonic_ns()
        if self.pinning is not None and self.pinning.holds(now_ns):
            self.acks.stalled = True  # the next ack makes the consumer look again
            self.pulls.end_one_shots()
            return
        if self.unread.holds:
            self.pulls.end_one_shots(_UNREADABLE)
            return
        self.stream.expire()
        batches_before = len(self.state.batches)
        try:
            end = self.delivery.deliver(now_ns)
        except StoreReadError as error:
            end = PassEnd.UNREADABLE
            self.unread.failed(error, self.try_again)
            self.pulls.end_one_shots(unreadable(error))
        else:
            self.unread.worked()
        if self.pinning is not None:
            self.pinning.after_pass()
        if self.delivery.delivered:
            self.inactivity.last_active_ns = now_ns
            self.last_delivered_ns = clock.now_ns()
            if self.state.pending:
                self.stream.holding[self] = None
            elif not self.state.tracks:
                self.acks.delivered(self.state.batches[batches_before:])
            self.touch()
        self.acks.stalled = end is PassEnd.STALLED
        # Requests left over for no other reason stand by: there is nothing for them.
        if end in (PassEnd.EXHAUSTED, PassEnd.NO_REQUESTS) and self.queue.has_one_shots:
            self.pulls.end_one_shots()
        if self.has_recipients:
            self._wait_for(end)

    def _wait_for(self, end: PassEnd) -> None:
        """Somebody still waits for messages: be woken by what ended the pass."""
        if end is PassEnd.BUDGET or (end is PassEnd.NO_REQUESTS and self.delivery.delivered):
            self._marks.later[self] = None
        elif end is PassEnd.BLOCKED:
            self.stream.blocked[self] = None
        elif end not in (PassEnd.STALLED, PassEnd.HELD, PassEnd.UNREADABLE):
            # Requests that do not wait, and redeliveries, need more than a message that matches.
            impatient = self.queue.has_one_shots or self.state.late > 0
            caught_up = end is PassEnd.EXHAUSTED and not self.backlog.last_per_subject
            self.stream.waiters.add(
                self, None if impatient else self.filter, self.state.next_seq if caught_up else 0
            )

    # -- journal

    def touch(self) -> None:
        """The state changed: journal it with the next flush, which comes soon."""
        if not self._is_dirty:
            self._is_dirty = True
            self._marks.dirty[self] = None
            self.context.barrier.want_soon()

    def report_later(self) -> None:
        """Let the stream's retention know, at the end of the tick, what is finished."""
        self._marks.to_report[self] = None

    def forgot(self, entries: Sequence[Entry]) -> None:
        """Deliveries are over because their messages left the stream, unless the flush fails."""
        self._marks.forgotten.setdefault(self, []).extend(entries)

    def _wall_offset_ns(self) -> int:
        """Wall-clock minus monotonic time."""
        clock = self.context.clock
        return clock.now_ns() - clock.monotonic_ns()

    def snapshot(self) -> bytes:
        """The whole state for the journal; the log starts anew."""
        self._delta_bytes = 0
        lasts = self.backlog.last_per_subject.to_journal(self.state.delivered_stream)
        value = journal.encode_snapshot(self.state, self._wall_offset_ns(), lasts)
        self.state.clear_log()
        return value

    def backup(self, last_seq: int) -> ConsumerState:
        """Where it is, as far as the stream up to ``last_seq`` goes."""
        return journal.backup_of(self.state, self._wall_offset_ns(), last_seq)

    def restore_backup(self, given: ConsumerState) -> None:
        """Take up what a backup says. Raises SnapshotFormatError."""
        store = self.stream.store
        self.restore(journal.snapshot_of_backup(self.state, self.name, given, store), [])

    def changes(self) -> tuple[bytes, bool]:
        """What changed since the last call, for the journal: (value, whether it is a delta)."""
        self._is_dirty = False
        if self._delta_bytes > _SNAPSHOT_AT + 64 * len(self.state.pending):
            return self.snapshot(), False
        delta = journal.encode_delta(self.state, self._wall_offset_ns())
        self._delta_bytes += len(delta)
        self.state.clear_log()
        return delta, True

    # -- questions

    @property
    def filter(self) -> SubjectFilter | None:
        """Which subjects it wants; None for all."""
        return self.backlog.filter

    def is_paused(self, now_ns: int) -> bool:
        """Whether delivery is paused at this wall-clock time."""
        return self.pause.holds(now_ns)

    def num_pending(self) -> int:
        """How many messages are still to be delivered for the first time."""
        return self.backlog.num_pending()

    def skip_to(self, next_seq: int) -> None:
        """Go on at ``next_seq``: for this consumer all before it is gone."""
        self.backlog.skip_to(next_seq)

    def wants(self, subject: bytes) -> bool:
        """Whether a message on this subject is one for this consumer."""
        filter = self.backlog.filter
        return filter is None or filter.matches(subject)

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether this consumer is not done with a message."""
        if not self.wants(subject):
            return False
        state = self.state
        return (
            stream_seq >= state.next_seq or stream_seq in state.pending or stream_seq in state.dead
        )
