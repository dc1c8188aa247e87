"""Staging: how a message that may be stored gets into a stream, and what its arrival brings with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from .....errors import StoreError
from .....subjects import SubjectFilter
from ..headers.published import header_value
from ..ports import Arrival

if TYPE_CHECKING:
    from ..tick.flush_barrier import PubAcks
    from .stream import Stream


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
                store.append_many(subject, payloads, self.time(), blocks)
            else:
                self._append_each(subjects, payloads, blocks)
        except StoreError:
            pass  # those that were not staged are left, and refused one by one
        return store.last_seq - first

    def _append_each(
        self, subjects: Sequence[bytes], payloads: Sequence[bytes], blocks: Sequence[bytes]
    ) -> None:
        append, now_ns = self._append, self.time()
        headers = blocks or repeat(b"")
        for subject, block, payload in zip(subjects, headers, payloads, strict=False):
            append(subject, block, payload, now_ns)

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
