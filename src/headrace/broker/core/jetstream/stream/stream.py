"""One stream: its configuration and its life, what it hears, and what happens in a tick and after a flush.

What it does is done by its parts: ``Publishes`` hears publishers, ``Staging`` is the way into the store,
``Removing`` the way out with the limits, ``CopyTarget`` takes in copies. Consumers see a message once the
flush that carries it has completed.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .....api.errors import Errors
from .....errors import StoreReadError
from ..config.options import Refused
from ..config.stream import compile_transform
from ..headers import message_id
from ..publish.duplicate_window import DuplicateWindow, KnownId, LeftIds
from ..publish.republish import Republisher, republisher_of
from ..schedules import Schedules
from ..tick.pub_acks import PubAcks
from ..tick.retry import Unread
from .expiry import Expiry
from .publishes import CopyTarget, Publishes, Staging
from .removing import Removing, SubjectLimit, retention_of
from .time import StreamTime
from .waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from .....api.streams import StreamConfig
    from .....message import StoredRow
    from ...ports import StreamStore
    from ..context import Context
    from ..ports import Copier, Reader


LEFT_AT_ONCE: Final = 1_000  # some 3 ms
_NS: Final = 1_000_000_000
_REBUILD_BATCH: Final = 1024


class Listening:
    """The subjects of one stream, in the router and among those that are taken."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._heard: dict[bytes, None] = {}  # those that are left later, too
        self._leaving: dict[bytes, None] = {}
        self._waiting: list[Callable[[], None]] = []
        self._asked = False

    def listen(self, config: StreamConfig) -> None:
        """Hear the subjects of a configuration from now on, and soon no others."""
        wanted = dict.fromkeys(subject.encode() for subject in config.subjects)
        hears = self._stream.publishes
        new = [pattern for pattern in wanted if pattern not in self._heard]
        self._leaving = {pattern: None for pattern in self._heard if pattern not in wanted}
        self._heard.update(dict.fromkeys(new))
        context = self._stream.context
        context.taken.add(new, self._stream.name)
        context.bus.add_sinks(new, hears.ingest, hears.ingest_many, hears.ingest_run)
        if len(self._leaving) <= LEFT_AT_ONCE:
            self._leave(self._leaving)
        self._go_on()

    def end(self) -> None:
        """Hear nothing more."""
        self._leave(list(self._heard))
        self._heard.clear()  # and its table, which has room for thousands
        self._go_on()

    def when_settled(self, then: Callable[[], None]) -> None:
        """Call when no subject is heard any more that is not to be."""
        if self._leaving:
            self._waiting.append(then)
        else:
            then()

    def turn(self) -> None:
        """Leave some, in a turn of the loop."""
        self._asked = False
        self._leave(list(islice(self._leaving, LEFT_AT_ONCE)))
        self._go_on()

    def _go_on(self) -> None:
        if self._leaving:
            if not self._asked:
                self._asked = True
                self._stream.context.barrier.turns.ask(self)
            return
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def _leave(self, patterns: Collection[bytes]) -> None:
        context = self._stream.context
        context.taken.remove(patterns, self._stream.name)
        context.bus.remove_sinks(patterns, self._stream.publishes.ingest)
        for pattern in list(patterns):
            del self._heard[pattern]
            self._leaving.pop(pattern, None)


class StreamMarks:
    """What happened to the streams of an engine, which works through it once per tick."""

    def __init__(self) -> None:
        self.dirty: list[Stream] = []
        """Streams with appended messages since the last end of a tick."""
        self.appended: dict[Stream, None] = {}
        """Streams with appended messages since the last flush began."""
        self.removed: dict[Stream, list[int]] = {}
        """Messages their consumers are done with, removed since the last flush began."""
        self.left: dict[Stream, None] = {}
        """Streams that messages with ids have left since the last flush began."""

    def enforce_limits(self) -> None:
        """Remove now what per-subject limits would remove at the end of the tick."""
        for stream in self.dirty:
            if stream.subject_limit.is_due:
                stream.subject_limit.enforce()


class Stream:
    """A stream that is open for publishing. Made by the engine, which also closes it."""

    def __init__(
        self,
        context: Context,
        config: StreamConfig,
        created_ns: int,
        store: StreamStore,
        marks: StreamMarks,
    ) -> None:
        self.context = context
        self.marks = marks
        self.config = config
        self.created_ns = created_ns
        self.store = store
        self.name = config.name
        self.is_closed = False
        self.unread = Unread(context, f"stream {config.name!r}")
        """What could not be done because the store cannot read now."""
        self.consumers: dict[str, Any] = {}
        """By name; each is a ``Reader`` here, and a consumer to the engine that made it."""
        self.waiters = Waiters()
        """Consumers with waiting requests that have seen everything durable."""
        self.holding: dict[Reader, None] = {}
        """Consumers with deliveries that are not acknowledged yet."""
        self.blocked: dict[Reader, None] = {}
        """Consumers that stopped because a receiver has too much unsent output."""
        self.copiers: dict[Copier, None] = {}
        """Copies that read this stream."""
        self.removals = 0
        """Counts removals, but not by acks and from the head; after one, what is pending is counted anew."""
        self._shown_seq = store.durable_seq  # waiters were told of everything up to this
        self.window = DuplicateWindow(0)
        self._left_ids = LeftIds(context.storage.meta, config.name, created_ns)
        self.republisher: Republisher | None = None
        self.schedules: Schedules | None = None
        self.time = StreamTime(context.clock, lambda: not store.messages, self._came_ahead)
        self.subject_limit: SubjectLimit = SubjectLimit(self)
        self.expiry = Expiry(self)
        self.removing = Removing(self)
        acks = PubAcks(config.name, context.options.domain)
        self.staging = Staging(self, acks)
        self.publishes = Publishes(self, self.staging, acks)
        self.copy_target = CopyTarget(store, self.staging, self.publishes.checks)
        self.listening = Listening(self)
        self._retention_is = ""
        self._configure()

    # -- lifecycle

    def open(self) -> None:
        if not self.config.mirror:
            self.listening.listen(self.config)
        self.removing.apply_limits()  # a crash may have kept a message and not what it removed
        self.arm()

    def close(self) -> None:
        """Stop listening; consumers are closed by the registry."""
        self.is_closed = True
        self.unread.cancel()
        self.context.removals.wake(self.unread)  # they end now, as there is nothing to remove
        self.listening.end()
        self.expiry.cancel()
        if self.schedules is not None:
            self.schedules.cancel()
        self.publishes.close()

    def forget_subjects(self) -> None:
        """Of a deleted stream: there may be thousands, and it is kept until the deletion is durable."""
        self.config = msgspec.structs.replace(self.config, subjects=())
        self.publishes.configure()

    def let_go(self) -> None:
        """Drop the parts of a deleted stream, whose deletion is durable: they know it, and nobody else them.

        They are freed at once so; what only the garbage collector finds may stay for hours.
        """
        self.publishes.let_go()
        self.schedules = None
        del self.time, self.retention, self.subject_limit, self.expiry, self.removing
        del self.staging, self.publishes, self.copy_target, self.listening

    def reconfigure(self, config: StreamConfig) -> None:
        """Take an updated, checked configuration."""
        self.config = config
        self._configure()
        self.listening.listen(config)
        self.removing.apply_limits()
        self.expiry.cancel()
        self.expiry.arm()

    def recover(self) -> None:
        """Rebuild what is not stored by itself: reminders of what is due, and the duplicate window."""
        self._rebuild_reminders()
        self.time.last_ns = self.store.state.last_ns
        self.time.now_ns()
        if self.window.window_ns:
            self.unread.attempt(self._rebuild_window)

    def _came_ahead(self) -> None:
        """The newest messages are from later than the clock says: they age by the stream's own time."""
        self.unread.attempt(self.expiry.rebuild)

    def _rebuild_reminders(self) -> None:
        self.unread.attempt(self.expiry.rebuild)
        if self.schedules is not None:
            self.unread.attempt(self.schedules.rebuild)

    def _rebuild_window(self) -> None:
        try:
            self._read_window()
        except StoreReadError as error:
            self.window.unread = error
            raise
        self.window.unread = None

    def _read_window(self) -> None:
        store, clock = self.store, self.context.clock
        now_ns, steady_ns = clock.now_ns(), clock.monotonic_ns()
        since_ns = now_ns - self.window.window_ns
        ids = self._left_ids.load(since_ns, store.last_seq)
        if self.writable():
            # They are written ahead: of messages that came and left in one commit, which a kill prevented.
            self._left_ids.forget_after(store.last_seq)
        position = store.next_with_headers(store.sequence_at(since_ns))
        while messages := store.read(position, None, _REBUILD_BATCH, 1 << 24, store.last_seq):
            position = store.next_with_headers(messages[-1].sequence + 1)
            for message in messages:
                found = message_id(message.headers)
                if found:
                    ids.append(KnownId(message.sequence, message.timestamp_ns, found))
        self.window.have_left(store.first_seq)
        self.window.fill(
            KnownId(sequence, steady_ns - max(now_ns - time_ns, 0), name)
            for sequence, time_ns, name in ids
        )

    def _configure(self) -> None:
        config, context = self.config, self.context
        self.transform = compile_transform(config, context.random)
        if config.retention != self._retention_is:
            self.retention, self._retention_is = retention_of(self), config.retention
        former, self.republisher = self.republisher, republisher_of(config, context.random)
        if former is not None:
            self.republisher = former.succeeded_by(self.republisher)
        if config.allow_msg_schedules and self.schedules is None:
            self.schedules = Schedules(context, self)
        self.window.window_ns = round(config.duplicate_window * _NS)
        self.window.notes_left = config.storage == "file"
        self.expiry.configure()
        self.subject_limit.configure()
        self.staging.configure()
        self.publishes.configure()
        is_bounded = config.max_msgs > 0 or config.max_bytes > 0
        self._bounded = is_bounded and config.discard == "old"

    # -- ticks and flushes

    def arm(self) -> None:
        """Have the timers of what expires and of what is scheduled run in time."""
        if self.is_closed:
            return
        self.expiry.arm()
        if self.schedules is not None:
            self.schedules.arm()

    def end_of_batch(self) -> None:
        """Once per tick with new messages: bring the stream within its limits."""
        self.staging.is_dirty = False
        if self.is_closed:
            return
        if self.subject_limit.is_due:
            self.subject_limit.enforce()
        if self._bounded:
            self.unread.attempt(self.removing.trim_to_size)
        self.arm()

    def wake_after_flush(self) -> None:
        """Let the next flush wake the waiters, even if it carries no message."""
        self.marks.appended[self] = None

    def flush_begins(self) -> None:
        """What comes from here on needs another flush, even if this tick is not over."""
        self.staging.is_dirty = False

    def on_durable(self) -> None:
        """New messages are on disk: whoever waits may have them."""
        if self.republisher is not None:
            self.republisher.release(self.store.durable_seq, self.context.bus)
        for copier in self.copiers:
            copier.wake()
        first, last = self._shown_seq + 1, self.store.durable_seq
        self._shown_seq = last
        if self.waiters:
            for reader in self.waiters.wake(
                first, lambda: self.store.subjects_between(first, last)
            ):
                reader.wake()

    def roll_back(self, done: Sequence[int]) -> None:
        """A flush failed: its messages are gone again, and what it removed is back.

        ``done`` are the removed ones that nobody needs: they are removed once more.
        """
        self.removals += 1
        self.context.removals.roll_back(self.unread, self.store.last_seq)
        self._rebuild_reminders()
        self.arm()
        if self.republisher is not None:
            self.republisher.roll_back(self.store.last_seq)
        self.window.forget_after(self.store.last_seq)
        if self.writable():
            self._left_ids.forget_after(self.store.last_seq)
        self.unread.attempt(partial(self.removing.remove_done, done))
        self.retention.consumers_changed()  # what the flush had removed is back
        self.removing.apply_limits()

    def resume_blocked(self) -> None:
        """Receivers have room again: consumers that stopped for that reason go on."""
        blocked, self.blocked = self.blocked, {}
        for reader in blocked:
            reader.wake()

    def messages_left(self, sequences: Sequence[int] = (), below: int = 0) -> None:
        """Messages were removed: these, and all before ``below``. Their ids live on."""
        window = self.window
        window.expire(self.context.clock.monotonic_ns())
        window.left(sequences)
        window.left_below(below)
        if window.has_left:
            self.marks.left[self] = None

    def stage_left_ids(self) -> None:
        """A flush starts that carries removals: it carries the ids of what was removed, too."""
        if self.is_closed or not self.writable():
            return
        clock, window = self.context.clock, self.window
        now_ns = clock.now_ns()
        offset_ns = now_ns - clock.monotonic_ns()
        self._left_ids.add(window.take_left(), offset_ns, now_ns - window.window_ns)

    # -- what others ask of it

    def check_not_sealed(self) -> None:
        if self.config.sealed:
            raise Refused(Errors.STREAM_SEALED)

    def writable(self) -> bool:
        """False once the store has failed."""
        return self.removing.writable()

    def expire(self) -> None:
        """Remove what has expired by now, and what is too much of its subject; later, if need be."""
        self.removing.expire()

    def take_out_expired(self, messages: Sequence[StoredRow]) -> bool:
        """Before somebody gets messages, after ``expire``: remove those of them that expired with too many
        others for one turn; whether there were any. Raises StoreReadError.
        """
        return self.removing.is_behind and self.expiry.remove_of(messages)

    def remove(self, sequences: Sequence[int]) -> int:
        """Remove messages; deliveries of them are over. Returns how many there were."""
        return self.removing.remove(sequences)

    def put_scheduled(self, subject: bytes, headers: bytes, payload: bytes, rollup: bytes) -> None:
        """Store what a schedule has made. Raises Refused, StoreError."""
        self.staging.put_scheduled(subject, headers, payload, rollup)
