"""One source, or the mirror, of a stream: reads its origin where it left off, a batch at a time.

Both streams are in this server, so nothing is sent: the origin's durable messages are read from its store
and staged in the target's. A copy that finds its target full waits until the target has room. How far it
has come is committed with the messages; see ``positions``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamSource, StreamSourceInfo
from .....api.times import parse_time
from .....errors import StoreError, StoreReadError
from .....message import StoredMessage
from ..config.refused import Refused
from ..config.sources import compile_route, index_name
from ..headers.source import SourceStamp, identity_of
from ..tick.flush_barrier import store_refusal
from .feed import Feed

if TYPE_CHECKING:
    from ..stream.stream import Stream
    from .copies import Copies

_BATCH_BYTES: Final = 1024 * 1024
_SPAN: Final = 32_768  # sequences looked at in one turn, however few of them match
_PASSED: Final = 8192  # so many sequences passed over without a message are worth a note
_NEVER_S: Final = -1e-9  # -1 ns, as the public server says never
_NS: Final = 1_000_000_000
_MADE_AGAIN: Final = (
    "stream {name!r} was made again, as one in memory has to be after a restart, or has lost messages: "
    "it is not the one that was mirrored so far. The mirror keeps what it has and takes nothing more; delete "
    "it and create it again to mirror the new one"
)


class Touch(Protocol):
    """Called when a position has changed; ``save`` if no stored message tells it."""

    def __call__(self, *, save: bool = True) -> None: ...


class Copy(ABC):
    """What sources and mirrors have in common."""

    other_policy: ErrorSpec
    """The refusal of a consumer to copy through that does not acknowledge by flow control …"""
    setup_failed: ErrorSpec
    """… and of one that can not be used for another reason."""

    def __init__(self, manager: Copies, target: Stream, source: StreamSource, touch: Touch) -> None:
        """``touch`` is called when the position has changed."""
        self.manager = manager
        self.context = context = manager.context
        self.target = target
        self.source = source
        self.index = index_name(source)
        self.filter, self._rename = compile_route(source, context.random)
        self.origin: Stream | None = None
        self.home: Copies | None = None
        """Who tells when the origin comes and goes: of its account; None if that is out of reach."""
        self.position = 0
        """Everything of the origin up to this sequence is copied or not wanted."""
        self.durable_position = 0
        """``position`` as far as it is durable."""
        self.identity = ""
        """Which life of the origin the position belongs to."""
        self.error: ErrorSpec | None = Errors.STREAM_NOT_FOUND
        """Why it can not go on, as the stream's info shows it."""
        self.is_idle = False
        """It waits for room in the target, or for what is wrong to be put right."""
        self.is_held = True
        """Nothing is copied before the configuration that asks for it is durable."""
        self._heard_ns = 0
        self._touch = touch
        self._touched = 0
        self._passed_over = False  # something was neither stored nor left for later
        self._last_copied = 0  # as a source shows it; of a mirror the last sequence says it
        self.feed: Feed | None = None
        """Where messages come from, if not from the origin's store: a consumer."""
        self._make_feed()
        self._done: list[int] = []  # copied, of an origin that lets go of what everybody has

    def _make_feed(self) -> None:
        consumer = self.source.consumer
        if consumer is not None:
            self.feed = Feed(self, consumer, self.other_policy, self.setup_failed)

    def follow(self, source: StreamSource) -> None:
        """The same source, of a new configuration: its consumer may deliver to another subject now."""
        moved = source.consumer != self.source.consumer
        self.source = source
        if moved and self.feed is not None:
            self.feed.stop()
            self._make_feed()

    # -- the origin

    def attach(self, origin: Stream) -> None:
        """The origin is there: go on at the position, or from the start if it is another one now.

        Not if this cannot take from another one: then it stays without an origin, and ``error`` says why.
        """
        self.error = self._refusal(origin)
        if self.error is not None:
            words = self.error.description
            self.context.options.warn(f"stream {self.target.name!r}: {words}")
            self.context.advisories.copy_stopped(self.target.name, origin.name, words)
            return
        self.origin = origin
        self.is_idle = False
        self._heard_ns = self.context.clock.monotonic_ns()
        identity = identity_of(origin.created_ns)
        is_new = self.identity != identity
        self._meet(origin, is_new)
        self.identity = identity
        if is_new:
            self._touch()
        self._done.clear()
        origin.copiers[self] = None

    def detach(self) -> None:
        """The origin goes, or the copy does."""
        if self.feed is not None:
            self.feed.stop()
        origin, self.origin = self.origin, None
        self.error = Errors.STREAM_NOT_FOUND
        if origin is not None:
            origin.copiers.pop(self, None)

    def _refusal(self, origin: Stream) -> ErrorSpec | None:
        """Why nothing can be copied from an origin, if so."""
        return None

    @abstractmethod
    def _meet(self, origin: Stream, is_new: bool) -> None:
        """Find the position in an origin; ``is_new`` if the known one is of another stream."""

    def _before_start(self, origin: Stream) -> int:
        """The position before the first message the configuration asks for."""
        source = self.source
        if source.opt_start_seq > 0:
            return source.opt_start_seq - 1
        if source.opt_start_time:
            return origin.store.sequence_at(parse_time(source.opt_start_time)) - 1
        return 0

    def begin_no_earlier(self) -> None:
        """It is configured anew, and its position may be of a time when it was configured before: nothing is
        copied before the sequence at which it is to start now."""
        start = self.source.opt_start_seq - 1
        if start > self.position:
            self.position = self.durable_position = start

    # -- copying

    def turn(self, room: int) -> int:
        """Copy up to ``room`` messages; returns how many were looked at.

        Afterwards there is more to do if ``is_behind``, and it can be done unless ``is_idle``.
        """
        origin = self.origin
        if origin is None:
            return 0
        if self.feed is not None:
            if self.feed.listening:
                self.feed.answer()
            else:
                self._start(self.feed)
            return 0
        store = origin.store
        start = max(self.position + 1, store.first_seq)
        last = min(store.durable_seq, start + _SPAN - 1)
        most = self.target.copy_target.room_for(room, _BATCH_BYTES)
        try:
            origin.expire()
            batch = store.read(start, self.filter, *most, last)
            read = len(batch)
            if origin.take_out_expired(batch):
                batch = [message for message in batch if store.holds(message.sequence)]
        except StoreReadError as error:
            self.is_idle = True
            self.error = store_refusal(error)
            return 0
        self._heard_ns = self.context.clock.monotonic_ns()
        copied = self._store_all(batch) if batch else 0
        if copied:
            if origin.config.retention != "limits":
                self._done.extend(message.sequence for message in batch[:copied])
            self.position = batch[copied - 1].sequence
            self._note_copied(self.position)
        if not read:  # one that ends early may have been cut short: the next turn tells
            self.position = max(self.position, last)
        if copied or self.position - self._touched >= _PASSED:
            self._touched = self.position
            self._touch(save=self._passed_over or not copied)
            self._passed_over = False
        return read

    @property
    def is_behind(self) -> bool:
        """Whether the origin has more, or has to be asked to send it."""
        if self.feed is not None:
            return self.origin is not None and not self.feed.listening
        return self.origin is not None and self.position < self.origin.store.durable_seq

    def _start(self, feed: Feed) -> None:
        failed = self.context.storage.failed
        if failed is not None:  # nothing could be stored, nor the consumer begun anew
            self.error = store_refusal(failed)
            self.is_idle = True
            return
        try:
            feed.start()
            self.error = None
            self._heard_ns = self.context.clock.monotonic_ns()
        except Refused as refusal:
            self.error = refusal.error
            self.is_idle = True

    def receive(self, message: StoredMessage) -> None:
        """Take a message the consumer delivered; what is copied already is passed over."""
        if message.sequence <= self.position:
            return
        self._heard_ns = self.context.clock.monotonic_ns()
        if self._store_all([message]):
            self.position = self._touched = message.sequence
            self._note_copied(message.sequence)
            self._touch(save=self._passed_over)
            self._passed_over = False
            return
        if self.feed is not None:
            self.feed.stop()
        if self.error is not None:
            self.manager.try_later(self)

    def want_commit(self) -> None:
        """Have ``committed`` called, even if nothing is new."""
        self._touch(save=False)

    def _store_all(self, batch: list[StoredMessage]) -> int:
        """Store a batch in the target; returns how many got in before something was in the way."""
        target = self.target
        stored = 0
        try:
            if target.config.sealed:
                raise Refused(Errors.STREAM_SEALED)
            for stored, message in enumerate(batch):  # noqa: B007 - it counts what went well
                self._store(message)
            self.error = None
            return len(batch)
        except Refused as refusal:
            self.is_idle = True
            if refusal.error.err_code == Errors.STREAM_STORE_FAILED.err_code:
                target.copy_target.waiting[self] = None
            else:
                self.error = refusal.error
        except StoreError as error:
            self.is_idle = True
            self.error = store_refusal(error)
        return stored

    @abstractmethod
    def _note_copied(self, sequence: int) -> None:
        """A batch went into the target, up to this sequence of the origin."""

    @abstractmethod
    def _store(self, message: StoredMessage) -> None:
        """Store one message. Raises Refused, StoreError."""

    # -- as the origin and the target know it

    def wake(self) -> None:
        """The origin has more messages on disk."""
        if not self.is_idle:
            self.manager.make_ready(self)

    def go_on(self) -> None:
        """What was in the way may be gone."""
        self.manager.go_on(self)

    def wants(self, subject: bytes) -> bool:
        """Whether a message on this subject is one to copy."""
        if self.feed is not None:
            return False  # the consumer wants it
        return self.filter is None or self.filter.matches(subject)

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether the origin has to keep a message for this copy."""
        return stream_seq > self.durable_position and self.wants(subject)

    def drain_done(self) -> list[int]:
        """What was copied since the last time, of an origin that may let go of it once it is durable."""
        done, self._done = self._done, []
        return done

    def committed(self, position: int, done: list[int]) -> None:
        """Everything up to ``position`` is durable here; ``done`` was copied of it."""
        self.durable_position = position
        if self.feed is not None and self.feed.can_answer:
            self.manager.make_ready(self)  # more comes then: not in this tick, which had its share
        origin = self.origin
        if origin is not None and done:
            origin.unread.attempt(partial(origin.retention.acknowledged, self, done))

    def let_go(self) -> None:
        """After a restart: an origin may still hold what was copied, if the power went in between."""
        origin = self.origin
        if self.feed is None and origin is not None:
            origin.unread.attempt(partial(self._let_go, origin))

    def _let_go(self, origin: Stream) -> None:
        first = self._before_start(origin) + 1
        if first <= self.durable_position:
            origin.retention.copied(self, first, self.durable_position)

    def roll_back(self, position: int) -> None:
        """What was copied since did not become durable."""
        self.position = self._touched = position
        self._done.clear()
        if self.feed is not None:
            self.feed.stop()

    # -- information

    def info(self, *, fresh: bool = False) -> StreamSourceInfo:
        """How far it has come; of one just made, a missing origin is nothing to speak of yet."""
        source, origin = self.source, self.origin
        lag = 0
        try:
            if self.feed is not None:
                lag = 0 if self.feed.consumer is None else self.feed.consumer.num_pending()
            elif origin is not None:
                lag = origin.store.count(self.filter, self.position + 1)
        except StoreReadError:
            if origin is not None:
                lag = max(0, origin.store.last_seq - self.position)  # not more than that
        active = _NEVER_S
        if origin is not None and not self.is_behind:
            active = 0.0
        elif self._heard_ns:
            active = max(self.context.clock.monotonic_ns() - self._heard_ns, 0) / _NS
        return StreamSourceInfo(
            name=source.name,
            lag=lag,
            active=active,
            filter_subject=source.filter_subject,
            subject_transforms=source.subject_transforms,
            external=source.external,
            seq=self._last_copied,
            error=None if self.error is None or fresh else self.error.to_wire(),
        )


class SourceCopy(Copy):
    """A source: messages get sequences and times of the target, and a header that says whence."""

    other_policy = Errors.SOURCE_CONSUMER_REQUIRES_FLOW_ACKS
    setup_failed = Errors.SOURCE_CONSUMER_SETUP_FAILED

    def __init__(self, manager: Copies, target: Stream, source: StreamSource, touch: Touch) -> None:
        super().__init__(manager, target, source, touch)
        self._stamp = SourceStamp(self.index, "")

    def _meet(self, origin: Stream, is_new: bool) -> None:
        if is_new:
            self.position = self.durable_position = self._before_start(origin)
            self._last_copied = 0
        else:
            self._last_copied = self.position
        self._stamp = SourceStamp(self.index, identity_of(origin.created_ns))

    def _note_copied(self, sequence: int) -> None:
        self._last_copied = sequence

    def _store(self, message: StoredMessage) -> None:
        sequence, subject, headers, payload, _ = message
        block = self._stamp.put(headers, sequence, subject)
        if self._rename is not None:
            subject = self._rename(subject)
        if not self.target.copy_target.store_copy(subject, block, payload):
            self._passed_over = True


class MirrorCopy(Copy):
    """A mirror: messages keep their sequences and times."""

    other_policy = Errors.MIRROR_CONSUMER_REQUIRES_FLOW_ACKS
    setup_failed = Errors.MIRROR_CONSUMER_SETUP_FAILED

    def _refusal(self, origin: Stream) -> ErrorSpec | None:
        try:
            if self._goes_on_in(origin):
                return None
        except StoreReadError as error:
            return store_refusal(error)
        return self.setup_failed.with_(err=_MADE_AGAIN.format(name=origin.name))

    def _goes_on_in(self, origin: Stream) -> bool:
        """Whether what is here came from this origin, or is in it, as when it was restored.

        The same sequences of another stream are other messages: one must not go on with the other's.
        """
        mine, theirs = self.target.store, origin.store
        last = mine.last_seq
        if not last:
            return True
        if theirs.last_seq < last:
            return False
        if self.identity in ("", identity_of(origin.created_ns)):
            return True
        here, there = mine.get(last), theirs.get(last)
        if here is None or there is None:
            return False
        return (here.timestamp_ns, here.payload) == (there.timestamp_ns, there.payload)

    def _meet(self, origin: Stream, is_new: bool) -> None:
        last = self.target.store.last_seq
        self.position = self.durable_position = last or self._before_start(origin)

    def _note_copied(self, sequence: int) -> None:
        """The target's last sequence says it."""

    def _store(self, message: StoredMessage) -> None:
        subject = message.subject
        if self._rename is not None:
            subject = self._rename(subject)
        self.target.copy_target.store_replica(message, subject)

    def roll_back(self, position: int) -> None:
        super().roll_back(max(position, self.target.store.last_seq))
