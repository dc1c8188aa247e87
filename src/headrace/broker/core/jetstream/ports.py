"""What the rooms of JetStream know of those above them, and what passes between them.

``Reader`` is a consumer and ``Copier`` a source or mirror of another stream, as their stream knows them;
``PublishTarget`` is the stream as batches know it. ``SourcePositions`` is how far a stream has come with what
it copies itself. An ``Arrival`` is a message on its way in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ....api.consumers import ConsumerConfig
from ....api.errors import ErrorSpec
from ....api.streams import StreamConfig, StreamSourceInfo
from ..ports import StreamStore


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


# -- who reads a stream


class User(Protocol):
    """Whoever may need a message: a consumer, or a copy on behalf of another stream."""

    def wants(self, subject: bytes) -> bool:
        """Whether a message on this subject is one for it."""

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Whether the stream has to keep a message for it."""


class ReaderState(Protocol):
    """How far a consumer has come; see ``consumer.delivery_state``."""

    next_seq: int
    delivered_consumer: int
    floor_stream: int

    def skip_below(self, stream_seq: int) -> None: ...


class ReaderAcks(Protocol):
    """The deliveries of a consumer that are not acknowledged; see ``consumer.acks.acks``."""

    def forget(self, stream_seqs: Sequence[int]) -> None: ...
    def forget_below(self, stream_seq: int) -> None: ...
    def forget_gone(self, stream_seqs: Sequence[int]) -> None: ...
    def receive_position(self, consumer_seq: int, stream_seq: int) -> None: ...


class PushSide(Protocol):
    """The deliver subject of a push consumer: whether somebody listens there."""

    @property
    def active(self) -> bool: ...


class Reader(User, Protocol):
    """A consumer, as its stream knows it; a pull consumer has no ``push``."""

    name: str
    config: ConsumerConfig

    @property
    def state(self) -> ReaderState: ...
    @property
    def acks(self) -> ReaderAcks: ...
    @property
    def push(self) -> PushSide | None: ...
    def skip_to(self, next_seq: int) -> None: ...
    def wake(self) -> None: ...
    def touch(self) -> None: ...
    def num_pending(self) -> int: ...


class Copier(User, Protocol):
    """A copy into another stream, as the stream it reads knows it, and the one it found full."""

    def wake(self) -> None:
        """The stream it reads has more messages on disk."""

    def go_on(self) -> None:
        """What was in its way may be gone."""


class SourcePositions(Protocol):
    """How far a stream has come with its sources, or its mirror; see ``sourcing.positions``."""

    def touch(self, *, save: bool = True) -> None: ...
    def infos(self, *, fresh: bool = False) -> tuple[StreamSourceInfo, ...]: ...


# -- who publishes to a stream


class Stager(Protocol):
    """The way into a stream's store; see ``stream.publishes.Staging``."""

    is_plain: bool

    @property
    def time(self) -> Callable[[], int]: ...
    def renamed(self, subject: bytes) -> bytes: ...
    def stage(self, subject: bytes, headers: bytes, payload: bytes) -> int: ...
    def stage_many(self, subjects: Sequence[bytes], payloads: Sequence[bytes]) -> int: ...
    def stage_together(self, arrivals: Sequence[Arrival]) -> int: ...


class PublishTarget(Protocol):
    """A stream, as batches know it; see ``stream.publishes.Publishes``."""

    name: str
    store: StreamStore

    @property
    def config(self) -> StreamConfig: ...
    @property
    def staging(self) -> Stager: ...
    def publish(self, subject: bytes, headers: bytes, payload: bytes) -> tuple[int, Arrival]: ...
    def confirm(
        self, sequence: int, reply: bytes, extra: bytes = b"", purge: Pending | None = None
    ) -> None: ...
    def refuse(self, reply: bytes, error: ErrorSpec) -> None: ...


# -- what an account may store


class StreamQuota(Protocol):
    """What an account may store, as its streams know it; see ``engine.engine.Quota``."""

    def bounds(self, storage: str) -> bool: ...
    def admit(self, storage: str, content_bytes: int) -> None: ...
    def check_stream(self, config: StreamConfig, before: StreamConfig | None = None) -> None: ...
