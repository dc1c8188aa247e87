"""How a checked message gets into a stream, and what its arrival brings with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .....api.envelope import encode_pub_error
from .....subjects import SubjectFilter
from .....transforms import SubjectTransform
from ..headers.published import header_value
from ..publish.batch_admission import Staged
from ..publish.duplicate_window import DuplicateWindow
from ..publish.republish import Republisher
from ..tick.flush_barrier import PubAcks, store_refusal
from ..tick.removals import Purge
from .removal import RemovingStream
from .retention import Retention

if TYPE_CHECKING:
    from ..publish.admission import PublishChecks
    from ..schedule.schedules import Schedules

__all__ = ["StoringStream"]


class StoringStream(RemovingStream):
    """The half of a stream that stores; see ``stream.Stream`` for who asks for it."""

    acks: PubAcks
    checks: PublishChecks
    republisher: Republisher | None
    retention: Retention
    schedules: Schedules | None
    transform: SubjectTransform | None
    window: DuplicateWindow
    rolling: Purge | None
    """What the message that is being stored rolls up, if that takes more than a turn."""
    _append: Callable[[bytes, bytes, bytes, int], int]
    _dirty: bool
    _last_ns: int
    _replaces: bool
    """Whether the store notes which message each new one takes the place of."""
    _thins_later: bool
    """Whether nobody notices that a subject has too many messages until the end of the tick."""
    _now_ns: Callable[[], int]

    def put(self, subject: bytes, headers: bytes, payload: bytes, ttl_ns: int = 0) -> int:
        """Store a message of the server's own, unchecked; returns its sequence. Raises StoreError."""
        now_ns = self.time()
        expires_ns = now_ns + ttl_ns if ttl_ns else 0
        sequence = self._store(subject, headers, payload, now_ns, expires_ns)
        if not self._dirty:
            self._mark_dirty()
        self._after_append(subject, sequence, b"")
        return sequence

    def put_scheduled(self, subject: bytes, headers: bytes, payload: bytes, rollup: bytes) -> None:
        """Store what a schedule has made, under the subject the stream gives it.

        Raises Refused when the account has no room for it, StoreError.
        """
        subject, now_ns = self.renamed(subject), self.time()
        self.context.quota.admit(self.config.storage, len(subject) + len(headers) + len(payload))
        ttl = header_value(headers, b"Nats-TTL")
        expires_ns = 0
        if ttl:
            expires_ns, changed = self.checks.lifetime(ttl, headers, now_ns)
            headers = changed or headers
        sequence = self._store(subject, headers, payload, now_ns, expires_ns)
        self._after_append(subject, sequence, rollup)
        if not self._dirty:
            self._mark_dirty()

    def store_together(self, messages: Sequence[Staged], reply: bytes, extra: bytes) -> None:
        """Store checked messages, all or none, and acknowledge the last. Raises Refused, StoreError."""
        self.context.quota.admit(
            self.config.storage, sum(len(m.subject + m.headers + m.payload) for m in messages)
        )
        self.rolling = None
        targets = [self._republishing(message.subject) for message in messages]
        sequence = self.store.append_together([message[:5] for message in messages])
        latest: dict[bytes, int] = {}
        for (target, before), message in zip(targets, messages, strict=True):
            if message.expires_ns:
                self.expiry.add(sequence, message.expires_ns)
            if message.message_id:
                self.window.add(message.message_id, sequence, message.timestamp_ns)
            if target and self.republisher is not None:
                before = latest.get(message.subject, before)
                self.republisher.note(sequence, target, message[:4], before)
            if self.schedules is not None:
                self.schedules.note(sequence, message.subject, message.headers, self._last_ns)
            latest[message.subject] = sequence
            self._after_append(message.subject, sequence, message.rollup)
            if message.ends:
                self.purge(SubjectFilter([message.ends]))
            sequence += 1
        if reply:
            self._confirm(sequence - 1, reply, extra)
        if not self._dirty:
            self._mark_dirty()

    def time(self) -> int:
        """Now, or the newest message's time if the clock was set back."""
        now_ns = self._last_ns = max(self._now_ns(), self._last_ns)
        return now_ns

    def renamed(self, subject: bytes) -> bytes:
        """The subject after the stream's transform."""
        return subject if self.transform is None else self.transform.apply(subject) or subject

    def arm(self) -> None:
        """Have the timers of what expires and of what is scheduled run in time."""
        self.expiry.arm()
        if self.schedules is not None:
            self.schedules.arm()

    def _store(
        self, subject: bytes, headers: bytes, payload: bytes, now_ns: int, expires_ns: int
    ) -> int:
        target, before = self._republishing(subject)
        if expires_ns:
            sequence = self.store.append_expiring(subject, headers, payload, now_ns, expires_ns)
            self.expiry.add(sequence, expires_ns)
        else:
            sequence = self._append(subject, headers, payload, now_ns)
        if target and self.republisher is not None:
            self.republisher.note(sequence, target, (subject, headers, payload, now_ns), before)
        if self.schedules is not None:
            self.schedules.note(sequence, subject, headers, now_ns)
        return sequence

    def _republishing(self, subject: bytes) -> tuple[bytes, int]:
        """Where a message goes beside the stream, if anywhere, and the sequence before on its subject."""
        if self.republisher is None:
            return b"", 0
        target = self.republisher.target(subject) if self.retention.wanted(subject) else b""
        before = self.store.subject(subject) if target else None
        return target, before.last_seq if before is not None else 0

    def _after_append(self, subject: bytes, sequence: int, rollup: bytes) -> None:
        """What a new message removes at once: a rollup, the oldest of its subject, or itself."""
        if rollup:
            scope = SubjectFilter.of_stored(subject) if rollup == b"sub" else None
            purge = self.purge(scope, below_seq=sequence)
            if not purge.done:
                self.rolling = purge
        if self.config.max_msgs_per_subject > 0:
            if not self._replaces:
                self.crowded[subject] = None
            if not self._thins_later:
                self.thin()
        if not self.retention.wanted(subject):
            self.store.remove([sequence])

    def _confirm(self, sequence: int, reply: bytes, extra: bytes = b"") -> None:
        """Acknowledge a message with the next flush, or with the last one of what it rolls up."""
        rolling, self.rolling = self.rolling, None
        if rolling is not None:
            rolling.when_done(partial(self._confirm_rolled, sequence, reply, extra))
        elif extra:
            self.acks.add(sequence, reply, extra)
        else:
            self.acks.waiting.append((sequence, reply))

    def _confirm_rolled(
        self, sequence: int, reply: bytes, extra: bytes, error: Exception | None
    ) -> None:
        if error is not None:
            refusal = encode_pub_error(self.config.name, store_refusal(error))
            self.context.bus.publish(reply, b"", b"", refusal)
        else:
            self.acks.add(sequence, reply, extra)
            self.context.gate.want(self.acks)

    def _mark_dirty(self) -> None:
        raise NotImplementedError
