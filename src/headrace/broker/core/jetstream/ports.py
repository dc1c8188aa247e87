"""What the rooms of JetStream know of those above them, and what passes between them.

``Reader`` is a consumer and ``Copier`` a source or mirror of another stream, as their stream knows them;
``StreamView`` is the stream as its consumers see it, ``PublishTarget`` as batches do and ``ScheduleTarget``
as its schedules do. ``SourcePositions`` is how far a stream has come with what it copies itself. An
``Arrival`` is a message on its way in.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Protocol

from ....api.consumers import ConsumerConfig
from ....api.errors import ErrorSpec
from ....api.streams import StreamConfig, StreamSourceInfo
from ....subjects import SubjectFilter
from ..ports import StreamStore

__all__ = [
    "Arrival",
    "Copier",
    "DuplicateIds",
    "Pending",
    "PublishTarget",
    "PushSide",
    "Reader",
    "ReaderAcks",
    "ReaderState",
    "Retries",
    "ScheduleTarget",
    "SourcePositions",
    "Stager",
    "StreamQuota",
    "StreamView",
    "User",
]


class Arrival:
    """A message on its way into a stream: as it is to be stored, and what its arrival brings with it."""

    expires_ns: int = 0
    """When it expires by itself; 0 if it does not."""
    message_id: bytes = b""
    duplicate_of: int = 0
    """The message that was stored under the same id: this one is not stored."""
    rollup: bytes = b""
    """``sub`` or ``all``: what it removes of the messages before it."""
    increment: int | None = None
    """By how much it counts, in a stream of counters."""
    is_schedule: bool = False
    ends: bytes = b""
    """The subject of a schedule that is over with it."""
    extra: bytes = b""
    """What its acknowledgement says beside the sequence."""
    purge: Pending | None = None
    """What it rolls up, if that takes more than a turn: the acknowledgement waits for it."""

    def __init__(self, subject: bytes, headers: bytes, payload: bytes, timestamp_ns: int) -> None:
        self.subject = subject
        self.headers = headers
        self.payload = payload
        self.timestamp_ns = timestamp_ns

    @property
    def size(self) -> int:
        """Bytes of content, as a quota counts them."""
        return len(self.subject) + len(self.headers) + len(self.payload)


class Pending(Protocol):
    """Work that goes on after the call that began it."""

    def when_done(self, then: Callable[[Exception | None], None]) -> None:
        """Call ``then`` at its end, at once if that has come."""
        ...


class Retries(Protocol):
    """Work that waits until the store can read again; see ``tick.retry``."""

    def attempt(self, job: Callable[[], object]) -> None: ...

    def failed(self, error: Exception, job: Callable[[], object]) -> None: ...


# -- who reads a stream


class User(Protocol):
    """Whoever may need a message: a consumer, or a copy on behalf of another stream."""

    def wants(self, subject: bytes) -> bool:
        """Whether a message on this subject is one for it."""
        ...

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether the stream has to keep a message for it."""
        ...


class ReaderState(Protocol):
    """How far a consumer has come."""

    next_seq: int
    """The sequence it reads next."""

    @property
    def delivered_consumer(self) -> int: ...

    @property
    def floor_stream(self) -> int: ...

    def skip_below(self, stream_seq: int) -> None:
        """Everything before this sequence left the stream."""
        ...


class ReaderAcks(Protocol):
    """The deliveries of a consumer that are not acknowledged."""

    def forget(self, stream_seqs: Sequence[int]) -> None:
        """These messages were removed: deliveries of them are over, and advisories say so."""
        ...

    def forget_below(self, stream_seq: int) -> None:
        """Everything before this sequence left the stream by a limit."""
        ...

    def forget_gone(self, stream_seqs: Sequence[int]) -> None:
        """These were purged."""
        ...

    def receive_position(self, consumer_seq: int, stream_seq: int) -> None:
        """Everything delivered up to here has arrived."""
        ...


class PushSide(Protocol):
    """The deliver subject of a push consumer."""

    @property
    def active(self) -> bool:
        """Whether somebody listens there."""
        ...


class Reader(User, Protocol):
    """A consumer, as its stream knows it."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> ConsumerConfig: ...

    @property
    def state(self) -> ReaderState: ...

    @property
    def acks(self) -> ReaderAcks: ...

    @property
    def push(self) -> PushSide | None:
        """None for a pull consumer."""
        ...

    def skip_to(self, next_seq: int) -> None:
        """Nothing before ``next_seq`` is left for it."""
        ...

    def wake(self) -> None:
        """There may be something for it to deliver."""
        ...

    def touch(self) -> None:
        """Its state has changed: the next flush journals it."""
        ...

    def num_pending(self) -> int:
        """How many messages it has yet to deliver. Raises StoreReadError."""
        ...


class Copier(User, Protocol):
    """A copy into another stream, as the stream it reads knows it, and the one it found full."""

    def wake(self) -> None:
        """The stream it reads has more messages on disk."""
        ...

    def go_on(self) -> None:
        """What was in its way may be gone."""
        ...


class SourcePositions(Protocol):
    """How far a stream has come with its sources, or its mirror."""

    def touch(self, *, save: bool = True) -> None:
        """A position has changed; it is journaled to ``save`` it where no stored message tells it."""
        ...

    def infos(self, *, fresh: bool = False) -> tuple[StreamSourceInfo, ...]:
        """How far each has come, as the stream's info shows it; ``fresh`` if the stream is just made."""
        ...


# -- a stream, as its consumers see it


class _Waiters(Protocol):
    """Consumers that have had every message so far."""

    def add(self, reader: Any, filter: SubjectFilter | None, caught_up: int = 0) -> None:
        """Wake a reader when a message that matches is durable; with no filter, by any flush.

        ``caught_up`` is its next sequence if it has seen everything before that, else 0.
        """
        ...

    def discard(self, reader: Any) -> None: ...


class _Retention(Protocol):
    """What decides whether an acknowledged message leaves the stream."""

    def acknowledged(self, consumer: Any, sequences: Sequence[int]) -> None:
        """A consumer is done with these. Raises StoreReadError, and then nothing has changed."""
        ...

    def consumers_changed(self) -> None:
        """A consumer has gone, or needs less than it did."""
        ...


class StreamView(Protocol):
    """A stream, as its consumers see it."""

    name: str
    config: StreamConfig
    store: StreamStore
    created_ns: int
    removals: int
    """Counts removals other than by acks and from the head: who counted messages counts anew."""

    @property
    def waiters(self) -> _Waiters: ...

    @property
    def retention(self) -> _Retention: ...

    @property
    def holding(self) -> MutableMapping[Any, None]:
        """Consumers with deliveries that are not acknowledged yet."""
        ...

    @property
    def blocked(self) -> MutableMapping[Any, None]:
        """Consumers that stopped because a receiver has too much unsent output."""
        ...

    def expire(self) -> None:
        """Remove what is too old."""
        ...

    def wake_after_flush(self) -> None:
        """Let the next flush wake the waiters, even if it carries no message."""
        ...


# -- who publishes to a stream


class DuplicateIds(Protocol):
    """The message ids a stream knows."""

    @property
    def last_id(self) -> bytes:
        """The id of the newest message that had one …"""
        ...

    @property
    def last_sequence(self) -> int:
        """… and that message."""
        ...

    def find(self, message_id: bytes, now_ns: int) -> int:
        """The sequence stored under this id, or 0. Raises StoreReadError."""
        ...


class Stager(Protocol):
    """The way into a stream's store."""

    is_plain: bool
    """Whether a message without headers needs no look at all."""

    def time(self) -> int:
        """Now, as a timestamp of the stream's; it never goes back."""
        ...

    def renamed(self, subject: bytes) -> bytes:
        """The subject after the stream's transform."""
        ...

    def stage(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        """Stage a message that needs no look; returns its sequence. Raises StoreError."""
        ...

    def stage_many(self, subjects: Sequence[bytes], payloads: Sequence[bytes]) -> int:
        """``stage`` for several without headers; returns how many were staged before one could not be."""
        ...

    def stage_together(self, arrivals: Sequence[Arrival]) -> int:
        """Stage checked messages, all or none; returns the last one's sequence.

        Raises Refused, StoreError.
        """
        ...


class PublishTarget(Protocol):
    """A stream, as batches know it."""

    name: str
    store: StreamStore

    @property
    def config(self) -> StreamConfig: ...

    @property
    def staging(self) -> Stager: ...

    def publish(self, subject: bytes, headers: bytes, payload: bytes) -> tuple[int, Arrival]:
        """Check a message and stage it, unless it is a duplicate; the sequence it has, or had already.

        Raises Refused, StoreError.
        """
        ...

    def confirm(
        self, sequence: int, reply: bytes, extra: bytes = b"", purge: Pending | None = None
    ) -> None:
        """Acknowledge with the next flush, or with the one that ends a ``purge``."""
        ...

    def refuse(self, reply: bytes, error: ErrorSpec) -> None:
        """Answer at once why something is not stored, if there is a ``reply``."""
        ...


class ScheduleTarget(Protocol):
    """A stream, as its schedules know it."""

    @property
    def config(self) -> StreamConfig: ...

    @property
    def store(self) -> StreamStore: ...

    @property
    def unread(self) -> Retries: ...

    def writable(self) -> bool:
        """Whether something can be stored or removed."""
        ...

    def put_scheduled(self, subject: bytes, headers: bytes, payload: bytes, rollup: bytes) -> None:
        """Store what a schedule has made. Raises Refused, StoreError."""
        ...

    def remove(self, sequences: Sequence[int]) -> int:
        """Remove messages; returns how many there were."""
        ...


# -- what an account may store


class StreamQuota(Protocol):
    """What an account may store, as its streams know it."""

    def bounds(self, storage: str) -> bool:
        """Whether what is published into a stream of this storage has to be admitted."""
        ...

    def admit(self, storage: str, content_bytes: int) -> None:
        """Count a message. Raises Refused if there is no room for it."""
        ...

    def check_stream(self, config: StreamConfig, before: StreamConfig | None = None) -> None:
        """Raises Refused if a stream reserves more than there is; ``before`` is what it was."""
        ...
