"""The way into one stream: what publishers send, what is copied from other streams, and the staging of both.

``Publishes`` hears publishers, and answers. ``CopyTarget`` takes in what other streams hold. ``Staging``
puts into the store what may be stored, with what its arrival brings. An acknowledgement leaves with the
flush that carries its message.
"""

from __future__ import annotations

from functools import partial
from itertools import count as count_from
from typing import TYPE_CHECKING, Final

from .....api.envelope import encode_pub_error
from .....errors import StoreError, StoreReadError
from .....limits import HEADER_BYTES_MAX
from .....subjects import SubjectFilter, is_literal
from ...server_headers import without_requester
from ..config.options import Refused
from ..headers import (
    FAST,
    MARK,
    expires_at,
    header_value,
    sole_expectations,
    sole_message_ids,
    sole_places,
    without_expectations,
)
from ..ports import Arrival, Copier, SourcePositions
from ..publish.admission import Checks
from ..publish.atomic_batches import BATCH_MARK, AtomicBatches
from ..publish.fast_batches import FastBatches
from ..tick.flush_barrier import store_refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .....api.errors import ErrorSpec
    from .....api.streams import StreamConfig
    from .....message import StoredMessage
    from .....wire.frames import Frame
    from .....wire.inprocess import PublishRun
    from ...ports import Origin, StreamStore
    from ..ports import Pending
    from ..tick.pub_acks import PubAcks
    from .stream import Stream

_FAST_END: Final = FAST[-1]
_FAST_THEN: Final = FAST + b" "
_PLACEHOLDERS_MAX: Final = 4096  # a longer gap begins a new segment instead
_PLACEHOLDER: Final = b""  # no message has this subject


class Staging:
    """The way into one stream's store.

    What is staged here is committed by the next flush; until then it counts for the limits alone.
    """

    def __init__(self, stream: Stream, acks: PubAcks) -> None:
        """``acks`` are released by the flushes that carry what is staged."""
        self._stream = stream
        self._acks = acks
        self._limit = stream.subject_limit
        self._store = stream.store
        self._append = stream.store.append
        self._clock = stream.time
        self.time: Callable[[], int] = stream.time.now_ns
        """Now, or a little later than the newest message's time where that is later; see ``time``."""
        self.is_dirty = False
        """Whether something was staged since the last tick ended, or the last flush began."""
        self.is_plain = False
        """Whether a message without headers needs no look at all."""

    def configure(self) -> None:
        stream, config = self._stream, self._stream.config
        self.is_plain = (
            stream.transform is None
            and stream.republisher is None
            and not config.sealed
            and not config.no_ack
            and not config.allow_msg_counter
            and not config.allow_msg_schedules
            and config.max_msg_size < 0
            and config.retention != "interest"
            and self._limit.is_deferred
        )

    def renamed(self, subject: bytes) -> bytes:
        """The subject after the stream's transform."""
        transform = self._stream.transform
        return subject if transform is None else transform.apply(subject) or subject

    def check_quota(self, size: int) -> None:
        """Refuse messages of so many bytes if the account has no room for them."""
        self._stream.context.quota.admit(self._stream.config.storage, size)

    # -- the ways in

    def stage(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        arrival: Arrival | None = None,
        at_ns: int = 0,
    ) -> int:
        """Stage one message; returns its sequence. Raises StoreError.

        Without an ``arrival`` it is one of a plain stream: nothing comes with it but the limit of its
        subject. ``at_ns`` is its time, if that is not now.
        """
        if at_ns > self._clock.last_ns:
            self._clock.last_ns = at_ns
        if arrival is not None:
            republishes = self._stream.republisher is not None
            target, before = self._republishing(subject) if republishes else (b"", 0)
            if arrival.expires_ns:
                stamp_ns, expires_ns = arrival.timestamp_ns, arrival.expires_ns
                sequence = self._store.append_expiring(
                    subject, headers, payload, stamp_ns, expires_ns
                )
            else:
                sequence = self._append(subject, headers, payload, arrival.timestamp_ns)
            if not self.is_dirty:
                self._mark_dirty()
            self._arrived(sequence, arrival, target, before)
            return sequence
        now_ns = at_ns or self.time()
        sequence = self._append(subject, headers, payload, now_ns)
        if self._limit.marks:
            self._limit.over[subject] = None
        if not self.is_dirty:
            self._mark_dirty()
        return sequence

    def stage_many(
        self, subjects: Sequence[bytes], payloads: Sequence[bytes], blocks: Sequence[bytes] = ()
    ) -> int:
        """Stage messages of a plain stream, whose headers, if there are ``blocks``, need no look.

        One subject alone stands for all. Returns how many were staged before one could not be.
        """
        store, limit, subject = self._store, self._limit, subjects[0]
        first = store.last_seq
        if limit.marks:
            limit.over.update(dict.fromkeys(subjects))
        if not self.is_dirty:
            self._mark_dirty()
        try:
            if len(subjects) == subjects.count(subject):
                subjects = (subject,)
            store.append_many(subjects, payloads, self.time(), blocks)
        except StoreError:
            pass  # those that were not staged are left, and refused one by one
        return store.last_seq - first

    def stage_together(self, arrivals: Sequence[Arrival]) -> int:
        """Stage checked messages, all or none; returns the last one's sequence.

        Raises Refused, StoreError.
        """
        self.check_quota(sum([arrival.size for arrival in arrivals]))
        places = [self._republishing(arrival.subject) for arrival in arrivals]
        sequence = self._store.append_together(
            [(a.subject, a.headers, a.payload, a.timestamp_ns, a.expires_ns) for a in arrivals]
        )
        if not self.is_dirty:
            self._mark_dirty()
        latest: dict[bytes, int] = {}
        for (target, before), arrival in zip(places, arrivals, strict=True):
            self._arrived(sequence, arrival, target, latest.get(arrival.subject, before))
            latest[arrival.subject] = sequence
            sequence += 1
        return sequence - 1

    # -- what the server stores of its own

    def put(self, subject: bytes, headers: bytes, payload: bytes, ttl_ns: int = 0) -> int:
        """Store a message of the server's own, unchecked; returns its sequence. Raises StoreError."""
        now_ns = self.time()
        arrival = Arrival(subject, headers, payload, now_ns)
        arrival.expires_ns = now_ns + ttl_ns if ttl_ns else 0
        return self.stage(subject, headers, payload, arrival)

    def put_scheduled(self, subject: bytes, headers: bytes, payload: bytes, rollup: bytes) -> None:
        """Store what a schedule has made, under the subject the stream gives it.

        Raises Refused when the account has no room for it, StoreError.
        """
        arrival = Arrival(self.renamed(subject), headers, payload, self.time())
        arrival.rollup = rollup
        self.check_quota(arrival.size)
        ttl = header_value(headers, b"Nats-TTL")
        if ttl:
            self._stream.publishes.checks.set_lifetime(arrival, ttl)
        self.stage(arrival.subject, arrival.headers, payload, arrival)

    # -- what an arrival brings with it

    def _republishing(self, subject: bytes) -> tuple[bytes, int]:
        """Where a message goes beside the stream, if anywhere, and the sequence before on its subject."""
        stream = self._stream
        if stream.republisher is None or not stream.retention.wanted(subject):
            return b"", 0
        target = stream.republisher.target(subject)
        before = self._store.subject(subject) if target else None
        return target, before.last_seq if before is not None else 0

    def _arrived(self, sequence: int, arrival: Arrival, target: bytes, before: int) -> None:
        stream, subject, stamp_ns = self._stream, arrival.subject, arrival.timestamp_ns
        if arrival.expires_ns:
            stream.expiry.add(sequence, arrival.expires_ns)
        if target and stream.republisher is not None:
            message = (subject, arrival.headers, arrival.payload, stamp_ns)
            stream.republisher.note(sequence, target, message, before)
        if stream.schedules is not None:
            stream.schedules.note(sequence, subject, arrival.headers, stamp_ns)
        if arrival.message_id:
            stream.window.add(arrival.message_id, sequence, stream.context.clock.monotonic_ns())
        if arrival.rollup:
            removing = stream.removing
            if arrival.rollup == b"sub":
                purge = removing.roll_up(subject, sequence)
            else:
                purge = removing.purge(None, below_seq=sequence)
            if purge is not None and not purge.done:
                arrival.purge = purge
        self._limit.stored(subject)
        if not stream.retention.wanted(subject):
            self._store.remove([sequence])
            stream.messages_left([sequence])
        if arrival.ends:
            stream.removing.purge(SubjectFilter([arrival.ends]))

    def _mark_dirty(self) -> None:
        self.is_dirty = True
        stream = self._stream
        stream.marks.dirty.append(stream)
        stream.marks.appended[stream] = None
        stream.context.barrier.want(self._acks)


def _distinct(subjects: Sequence[bytes]) -> int:
    """How many of these there are before one is there again."""
    seen: set[bytes] = set()
    for subject in subjects:
        if subject in seen:
            break
        seen.add(subject)
    return len(seen)


def _equal(expected: Sequence[int], lasts: Sequence[int]) -> int:
    """How many at the front of ``lasts`` are as expected."""
    if lasts == expected[: len(lasts)]:
        return len(lasts)
    return next(at for at, last in enumerate(lasts) if last != expected[at])


class Publishes:
    """The sinks of a stream's subjects."""

    def __init__(self, stream: Stream, staging: Staging, acks: PubAcks) -> None:
        self._stream = stream
        self._acks = acks
        self.staging = staging
        self.name = stream.name
        self.store = stream.store
        self._steady_ns = stream.context.clock.monotonic_ns
        self.checks = Checks(stream.context, stream.config, stream.store, stream.window)
        self.atomic = AtomicBatches(stream.context, self, self.checks)
        self.fast = FastBatches(stream.context, self, self.checks)

    @property
    def config(self) -> StreamConfig:
        return self._stream.config

    def configure(self) -> None:
        """Take over the stream's configuration: batches that are not allowed any more are forgotten."""
        self.checks.configure(self.config)
        if not self.config.allow_atomic:
            self.atomic.close()
        if not self.config.allow_batched:
            self.fast.close()

    def close(self) -> None:
        self.atomic.close()
        self.fast.close()

    def let_go(self) -> None:
        """The stream is no more, a while after ``close``."""
        self.checks.let_go()
        del self.atomic, self.fast

    # -- sinks

    def ingest(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        """One published message: stage it, or answer why not."""
        if reply and reply[-1] == _FAST_END and reply[-4:] == FAST:
            self.fast.ingest(subject, reply, headers, payload)
            return
        names: Sequence[bytes] = ()
        if headers or not self.staging.is_plain:
            right = 0
            if self.staging.is_plain:
                right, names = self._right((subject,), (headers,))
            if not right:
                self._ingest_checked(subject, reply, headers, payload)
                return
        try:
            sequence = self.staging.stage(subject, headers, payload)
        except StoreError as error:
            self.refuse(reply, store_refusal(error))
            return
        if names:
            self._stream.window.add(names[0], sequence, self._steady_ns())
        if reply:
            self._acks.waiting.append((sequence, reply))

    def ingest_many(self, frames: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Published messages: stage those at the front that need no more than that; returns the others.

        That is so if their headers say nothing to the stream, or what is right at a glance: a new id
        each, or the last sequence of their subjects or of the stream.
        """
        if not self.staging.is_plain:
            return frames
        # Lists, as `zip(*frames)` makes an iterator of each, for the garbage collector to look at.
        blocks = [frame[3] for frame in frames]
        headed = any(blocks)
        if frames[0][2][-4:] == FAST:
            return frames if headed else self.fast.ingest_many(frames)
        replies = [frame[2] for frame in frames]
        if _FAST_THEN in b" ".join(replies) + b" ":
            return frames
        subjects, payloads = [frame[1] for frame in frames], [frame[4] for frame in frames]
        names: Sequence[bytes] = ()
        if headed:
            right, names = self._right(subjects, blocks)
            if not right:
                return frames
            subjects, payloads, blocks = subjects[:right], payloads[:right], blocks[:right]
        first = self.store.last_seq + 1
        staged = self.staging.stage_many(subjects, payloads, blocks if headed else ())
        if names and staged:
            self._stream.window.add_many(names[:staged], first, self._steady_ns())
        numbered = zip(range(first, first + staged), replies, strict=False)
        if b"" in replies:
            self._acks.waiting += [(number, reply) for number, reply in numbered if reply]
        else:
            self._acks.waiting += numbered
        return frames[staged:]

    def _right(
        self, subjects: Sequence[bytes], blocks: Sequence[bytes]
    ) -> tuple[int, Sequence[bytes]]:
        """How many of these at the front have headers that are right at a glance, and the ids of those.

        All with an id are, or none; of those that say a last sequence, those before the first that is
        wrong.
        """
        if max(map(len, blocks)) > HEADER_BYTES_MAX:
            return 0, ()
        names = sole_message_ids(blocks)
        if names is not None:
            is_new = not names or self._stream.window.are_new(names, self._steady_ns())
            return (len(blocks) if is_new else 0), names
        expected = sole_expectations(blocks)
        if expected is None:
            expected, last = sole_places(blocks) or [], self.store.last_seq
            return _equal(expected, list(range(last, last + len(expected)))), ()
        if not is_literal(b".".join(subjects)):  # one is a pattern: it asks about many
            return 0, ()
        if len(set(subjects)) != len(subjects):
            subjects = subjects[: _distinct(subjects)]
        try:
            return _equal(expected, self.store.last_of_each(subjects)), ()
        except StoreReadError:
            return 0, ()

    def ingest_run(self, run: PublishRun, origin: Origin | None) -> Sequence[Frame]:
        """``ingest_many`` for the frames of a run; if all are staged, one answer is for all."""
        if not self.staging.is_plain:
            return run.frames
        first = self.store.last_seq + 1
        staged = self.staging.stage_many((run.subject,), run.payloads)
        if staged == len(run.payloads):
            self._acks.waiting.append((self.store.last_seq, run.reply))
            return ()
        frames = run.frames
        replies = [frame[2] for frame in frames[:staged]]
        self._acks.waiting += zip(count_from(first), replies, strict=False)
        return frames[staged:]

    def _ingest_checked(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        try:
            headers = without_requester(headers)
            if self.config.no_ack:
                reply = b""
            if BATCH_MARK in headers:
                self.atomic.ingest(subject, reply, headers, payload)
                return
            sequence, arrival = self.publish(subject, headers, payload)
        except Refused as refusal:
            self.refuse(reply, refusal.error)
        except StoreError as error:
            self.refuse(reply, store_refusal(error))
        else:
            if arrival.duplicate_of:
                self._confirm_duplicate(sequence, reply)
            elif reply:
                self.confirm(sequence, reply, arrival.extra, arrival.purge)

    def publish(self, subject: bytes, headers: bytes, payload: bytes) -> tuple[int, Arrival]:
        """Check a message and stage it, unless it is a duplicate; the sequence it has, or had already.

        Raises Refused, StoreError.
        """
        staging = self.staging
        arrival = self.checks.admit(staging.renamed(subject), headers, payload, staging.time())
        if arrival.duplicate_of:
            return arrival.duplicate_of, arrival
        staging.check_quota(arrival.size)
        return staging.stage(arrival.subject, arrival.headers, arrival.payload, arrival), arrival

    # -- answers

    def refuse(self, reply: bytes, error: ErrorSpec) -> None:
        """Answer at once why something is not stored, if there is a ``reply``."""
        if reply:
            self._stream.context.bus.publish(reply, b"", b"", encode_pub_error(self.name, error))

    def confirm(
        self, sequence: int, reply: bytes, extra: bytes = b"", purge: Pending | None = None
    ) -> None:
        """Acknowledge with the next flush, or with the one that ends a ``purge``."""
        if purge is not None:
            purge.when_done(partial(self._purged, sequence, reply, extra))
            return
        if extra:
            self._acks.add(sequence, reply, extra)
        else:
            self._acks.waiting.append((sequence, reply))
        self._stream.context.barrier.want(self._acks)

    def _purged(self, sequence: int, reply: bytes, extra: bytes, error: Exception | None) -> None:
        if error is not None:
            self.refuse(reply, store_refusal(error))
        else:
            self.confirm(sequence, reply, extra)

    def _confirm_duplicate(self, sequence: int, reply: bytes) -> None:
        """Say where the first message is: at once if that is durable."""
        if not reply:
            return
        context = self._stream.context
        if sequence <= self.store.durable_seq:
            context.bus.publish(reply, b"", b"", self._acks.duplicate(sequence))
        else:
            self._acks.add_duplicate(sequence, reply)
            context.barrier.want(self._acks)


class CopyTarget:
    """Takes messages of the sources, or the mirrored stream, of one stream."""

    def __init__(self, store: StreamStore, staging: Staging, checks: Checks) -> None:
        self._store = store
        self._staging = staging
        self._checks = checks
        self.positions: SourcePositions | None = None
        """How far the copies have come, if there are any."""
        self.waiting: dict[Copier, None] = {}
        """Copies that have something for this stream and found it full."""
        self.room_for = checks.room_for

    def store_copy(self, subject: bytes, headers: bytes, payload: bytes) -> bool:
        """Store a message of a source, which its headers name; False for a duplicate, passed over.

        Raises Refused when it can not be stored now, StoreError.
        """
        staging = self._staging
        # Marked once: the source's name, and nothing else of ours.
        if staging.is_plain and headers.count(MARK) == 1:
            staging.stage(subject, headers, payload)
            return True
        arrival = self._checks.admit_copy(
            staging.renamed(subject), headers, payload, staging.time()
        )
        if arrival.duplicate_of:
            return False
        staging.check_quota(arrival.size)
        staging.stage(arrival.subject, arrival.headers, arrival.payload, arrival)
        return True

    def store_replica(self, message: StoredMessage, subject: bytes) -> None:
        """Store a message of the mirrored stream with its sequence and time.

        Raises Refused when it can not be stored now, StoreError.
        """
        sequence, _, headers, payload, stamp_ns = message
        staging = self._staging
        if sequence <= self._store.last_seq:
            return
        if MARK in headers:
            headers = without_expectations(headers)
        arrival = None
        if MARK in headers or not staging.is_plain:
            subject = staging.renamed(subject)
            arrival = self._checks.admit_copy(subject, headers, payload, stamp_ns, replica=True)
            arrival.headers, arrival.payload = headers, payload  # as they are there
            if arrival.expires_ns:
                arrival.expires_ns = expires_at(headers, stamp_ns)
            staging.check_quota(arrival.size)
        if sequence > self._store.last_seq + 1:
            leave_gap(self._store, sequence, stamp_ns)
        staging.stage(subject, headers, payload, arrival, stamp_ns)

    def drop_placeholders(self) -> None:
        """After a restart: take away placeholders whose removal was cut off with the end of a file."""
        while (state := self._store.subject(_PLACEHOLDER)) is not None:
            self._store.remove([state.first_seq])

    def made_room(self) -> None:
        """Messages are gone: whoever waits for room goes on, and positions have to be kept."""
        if self.positions is not None:
            self.positions.touch(save=False)
        if self.waiting:
            waiting, self.waiting = self.waiting, {}
            for copier in waiting:
                copier.go_on()


def leave_gap(store: StreamStore, sequence: int, stamp_ns: int, most: int = 1 << 62) -> bool:
    """See to it that the next message gets this sequence: those in between were never there.

    Does about ``most`` sequences of it; whether that was all.
    """
    missing = sequence - 1 - store.last_seq
    if not store.messages or missing > _PLACEHOLDERS_MAX:
        store.skip_to(sequence)
        return True
    first, some = store.last_seq + 1, min(missing, most)
    for _ in range(some):
        store.append(_PLACEHOLDER, b"", b"", stamp_ns)
    store.remove(range(first, first + some))
    return some == missing
