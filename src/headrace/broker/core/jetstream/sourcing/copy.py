"""One source, or the mirror, of a stream: reads its origin where it left off, a batch at a time.

Both streams are in this server, so nothing is sent: the origin's durable messages are read from its store
and staged in the target's. A copy that finds its target full waits until the target has room. How far it
has come is committed with the messages; see ``positions``.

An origin is the same stream where the message at a copy's place has the timestamp it had. One that was put
back from a backup goes on, then, and one that lost its last messages is found to be short of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamSource, StreamSourceInfo
from .....api.times import parse_time
from .....errors import StoreError, StoreReadError
from .....identity import Mark, MessageIdentity, Sameness, compare, with_mark
from .....message import StoredMessage
from ..config.options import Refused
from ..config.sources import compile_route, index_name
from ..headers import SourceStamp, identity_of, read_origination
from ..tick.flush_barrier import store_refusal
from .feed import Feed

if TYPE_CHECKING:
    from ..stream.stream import Stream
    from .copies import Copies

_BATCH_BYTES: Final = 1024 * 1024
_SPAN: Final = 32_768  # sequences looked at in one turn, however few of them match
_PASSED: Final = 8192  # so many sequences passed over without a message are worth a note
_MARKED: Final = 1024  # sequences between the marks that a copy leaves behind
_NEVER_S: Final = -1e-9  # -1 ns, as the public server says never
_NS: Final = 1_000_000_000
_MADE_AGAIN: Final = (
    "stream {name!r} was made again, as one in memory has to be after a restart, or has lost messages: "
    "it is not the one that was mirrored so far. The mirror keeps what it has and takes nothing more; delete "
    "it and create it again to mirror the new one"
)
_CANNOT_TELL: Final = (
    "stream {target!r}: stream {name!r} was made anew, and message {sequence}, the last one that was copied, "
    "is not in it any more: it cannot be told whether it is the stream that was copied so far. Copying goes "
    "on behind that message"
)


class CopyPlace(NamedTuple):
    """How far a copy has come in its origin, and what that is recognised by."""

    sequence: int
    """Everything up to it is copied or not wanted."""
    identity: str
    """The life of the origin, by when it was made; nothing if it never had one."""
    stamp_ns: int = 0
    """When the message at ``sequence`` was stored, nanoseconds since the epoch; 0 if that is not known."""
    marks: tuple[Mark, ...] = ()
    """Some messages before, the newest last."""
    told_at: int = 0
    """The message of the target whose header alone tells this place, while ``stamp_ns`` is not known."""
    lost: int = 0
    """So many of the target's last messages are lost, of which some may have been copied up to here …"""
    kept: int = 0
    """… and up to here those that were copied are not among them."""


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
        self.place = CopyPlace(0, "")
        """The last place at or before ``position`` at which there was a message."""
        self.durable_place = self.place
        """``place`` as far as it is durable."""
        self.era = 0
        """Counts the origins that were another stream than the one before, or had lost messages."""
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
        """Follow a new configuration of the source: its consumer may deliver to another subject now."""
        moved = source.consumer != self.source.consumer
        self.source = source
        if moved and self.feed is not None:
            self.feed.stop()
            self._make_feed()

    # -- the origin

    def stand(self, place: CopyPlace) -> None:
        """A copy that has no origin yet has come so far."""
        self.place = self.durable_place = place
        self.position = self.durable_position = place.sequence

    def attach(self, origin: Stream) -> None:
        """The origin is there: go on at the place, or where it is another one now as ``_meet`` says.

        Not if this cannot take from another one: then it stays without an origin, and ``error`` says why.
        Raises StoreReadError, and then nothing has changed.
        """
        self.error = self._refusal(origin)
        if self.error is not None:
            words = self.error.description
            self.context.options.warn(f"stream {self.target.name!r}: {words}")
            self.context.advisories.copy_stopped(self.target.name, origin.name, words)
            return
        before = self.place
        self._meet(origin, identity_of(origin.created_ns))
        self.origin = origin
        self.is_idle = False
        self._heard_ns = self.context.clock.monotonic_ns()
        if self.place[:2] != before[:2] or before.lost:
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
        """Why nothing can be copied from an origin, if so. Raises StoreReadError."""
        return None

    @abstractmethod
    def _meet(self, origin: Stream, identity: str) -> None:
        """Find the place in an origin, whose life has this ``identity``. Raises StoreReadError, and then
        nothing has changed."""

    def _look(self, origin: Stream, mark: Mark) -> Sameness:
        """Whether an origin has a message of this sequence and time. Raises StoreReadError."""
        store, name = origin.store, origin.name
        rows = store.rows(mark[0], None, 1, 1, store.last_seq)
        found = MessageIdentity(name, rows[0][0], rows[0][4]) if rows else None
        last = MessageIdentity(name, store.last_seq, store.state.last_ns)
        return compare(MessageIdentity(name, *mark), found, last)

    def _marked(self, origin: Stream) -> int:
        """The newest mark that an origin has; 0 for none. Raises StoreReadError."""
        for mark in reversed(self.place.marks):
            if self._look(origin, mark) is Sameness.SAME:
                return mark[0]
        return 0

    def _cannot_tell(self, origin: Stream, sequence: int) -> None:
        text = _CANNOT_TELL.format(target=self.target.name, name=origin.name, sequence=sequence)
        self.context.options.warn(text)

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
            self._note_copied(self.position, batch[copied - 1].timestamp_ns)
        if not read:  # one that ends early may have been cut short: the next turn tells
            self.position = max(self.position, last)
        if copied or self.position - self._touched >= _PASSED:
            self._touched = self.position
            if not copied:
                self._note_passed(origin)
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
            self._note_copied(message.sequence, message.timestamp_ns)
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

    def _note_copied(self, sequence: int, stamp_ns: int) -> None:
        """Everything up to this message of the origin is copied or not wanted."""
        place = self.place
        marks = place.marks
        if not marks or sequence - marks[-1][0] >= _MARKED:
            marks = with_mark(marks, (sequence, stamp_ns))
        self.place = CopyPlace(sequence, place.identity, stamp_ns, marks)

    def _note_passed(self, origin: Stream) -> None:
        """Much was passed over without a message to copy."""
        try:
            rows = origin.store.rows(self.position, None, 1, 1, self.position)
        except StoreReadError:
            return  # a place further back serves as well: what follows it is passed over once more
        if rows:
            Copy._note_copied(self, self.position, rows[0][4])

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

    def committed(self, position: int, place: CopyPlace, done: list[int]) -> None:
        """Everything up to ``position`` is durable here; ``done`` was copied of it."""
        self.durable_position = position
        self.durable_place = place
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

    def roll_back(self) -> None:
        """What was copied since the last commit did not become durable."""
        self.position = self._touched = self.durable_position
        self.place = self.durable_place._replace(identity=self.place.identity)
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

    def _meet(self, origin: Stream, identity: str) -> None:
        before = self.place
        place = self._found(origin, identity) if before.identity else None
        if place is None:
            place = CopyPlace(self._before_start(origin), identity)
            self.position = self.durable_position = self._touched = place.sequence
            self.durable_place = place
            self._last_copied = 0
            self.era += 1
        else:
            if before.lost:
                place = self._before_lost(origin, place)
            self._go_on_at(place, self.source.opt_start_seq - 1)
        self.place = place
        self._stamp = SourceStamp(self.index, identity)

    def _go_on_at(self, place: CopyPlace, start: int) -> None:
        self.position = self._touched = self._last_copied = max(place.sequence, start)
        if place.sequence < self.place.sequence:
            self.era += 1  # what is on its way to the disk came after it
        if place.sequence <= self.durable_place.sequence:
            self.durable_place = place
        self.durable_position = min(self.durable_position, self.position)

    def _found(self, origin: Stream, identity: str) -> CopyPlace | None:
        """The place in an origin; None if it is another stream. Raises StoreReadError."""
        place, store = self.place, origin.store
        is_same_life = place.identity == identity
        if not place.stamp_ns:
            if is_same_life:  # all that is known says that it is the same one
                copied = place.sequence > self.source.opt_start_seq - 1
                sequence = min(place.sequence, store.last_seq) if copied else place.sequence
                return self._at(origin, sequence, identity)
            if self._is_copy(origin):
                return self._at(origin, place.sequence, identity)
            mark = self._marked(origin)
            return self._at(origin, mark, identity) if mark else None
        sameness = self._look(origin, (place.sequence, place.stamp_ns))
        if sameness is Sameness.SAME or (is_same_life and sameness is Sameness.GONE):
            return place._replace(identity=identity)
        mark = self._marked(origin)
        if sameness is Sameness.GONE:
            if not mark:
                self._cannot_tell(origin, place.sequence)
            return place._replace(identity=identity)
        if not (mark or is_same_life):
            return None
        # What came after the loss is newer than what was copied.
        newer = store.sequence_at(place.stamp_ns + 1)
        return self._at(origin, min(place.sequence - 1, store.last_seq, newer - 1), identity)

    def _at(self, origin: Stream, sequence: int, identity: str) -> CopyPlace:
        """A place at or before the one that is known. Raises StoreReadError."""
        marks = tuple(mark for mark in self.place.marks if mark[0] <= sequence)
        rows = origin.store.rows(sequence, None, 1, 1, sequence)
        if not rows:
            return CopyPlace(sequence, identity, 0, marks)
        stamp_ns = rows[0][4]
        return CopyPlace(sequence, identity, stamp_ns, marks or ((sequence, stamp_ns),))

    def _is_copy(self, origin: Stream) -> bool:
        """Whether what the newest copy in the target says it was is in an origin. Raises StoreReadError."""
        place, target = self.place, self.target
        here = target.store.get(place.told_at) if place.told_at else None
        there = origin.store.get(place.sequence) if here is not None else None
        said = read_origination(here.headers) if here is not None else None
        if here is None or there is None or said is None:
            return False
        is_counter = target.config.allow_msg_counter  # it adds up what it copies
        return said.subject == there.subject and (is_counter or here.payload == there.payload)

    def _before_lost(self, origin: Stream, place: CopyPlace) -> CopyPlace:
        """A place so far back that what the target has lost comes again. Raises StoreReadError."""
        store, lost, kept = origin.store, self.place.lost, self.place.kept
        low, high = max(min(kept, place.sequence), self._before_start(origin)), place.sequence
        beyond = store.count(self.filter, place.sequence + 1)
        while low < high:
            middle = (low + high + 1) // 2
            if store.count(self.filter, middle + 1) - beyond >= lost:
                low = middle
            else:
                high = middle - 1
        return self._at(origin, min(low, place.sequence), place.identity)

    def _note_copied(self, sequence: int, stamp_ns: int) -> None:
        super()._note_copied(sequence, stamp_ns)
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
        if self._goes_on_in(origin):
            return None
        return self.setup_failed.with_(err=_MADE_AGAIN.format(name=origin.name))

    def _goes_on_in(self, origin: Stream) -> bool:
        """Whether what is here came from this origin, or is in it, as when it was restored.

        The same sequences of another stream are other messages: one must not go on with the other's.
        """
        last = self.target.store.last_seq
        stamp_ns = self._last_stamp_ns()
        sameness = self._look(origin, (last, stamp_ns))
        if sameness is not Sameness.GONE:
            return sameness is Sameness.SAME
        if self.place.identity in ("", identity_of(origin.created_ns)) or self._marked(origin):
            return True
        if stamp_ns:
            self._cannot_tell(origin, last)
        return bool(stamp_ns)

    def _last_stamp_ns(self) -> int:
        """When the last message of the mirror was stored; 0 if that is not known. Raises StoreReadError."""
        store, place = self.target.store, self.place
        here = store.get(store.last_seq) if store.last_seq else None
        if here is not None:
            return here.timestamp_ns
        return place.stamp_ns if place.sequence == store.last_seq else 0

    def _meet(self, origin: Stream, identity: str) -> None:
        last = self.target.store.last_seq
        place = CopyPlace(last, identity, self._last_stamp_ns(), self.place.marks if last else ())
        if not last:
            place = place._replace(sequence=self._before_start(origin))
        self.position = self.durable_position = place.sequence
        self.place = self.durable_place = place

    def _store(self, message: StoredMessage) -> None:
        subject = message.subject
        if self._rename is not None:
            subject = self._rename(subject)
        self.target.copy_target.store_replica(message, subject)

    def roll_back(self) -> None:
        super().roll_back()
        self.position = self._touched = max(self.position, self.target.store.last_seq)
