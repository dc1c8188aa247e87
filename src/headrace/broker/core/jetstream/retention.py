"""When an acknowledged message leaves the stream: never, at its ack, or when nobody needs it any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from .stream import Stream

__all__ = [
    "InterestRetention",
    "LimitsRetention",
    "Retention",
    "WorkQueueRetention",
    "retention_of",
]


class User(Protocol):
    """Whoever may need a message: a consumer, or a copy on behalf of another stream."""

    def wants(self, subject: bytes) -> bool: ...

    def needs(self, stream_seq: int, subject: bytes) -> bool: ...


_WANTED_MAX: Final = 32_768  # one more subject: the ones known are asked about anew


class Retention(Protocol):
    """What a stream's retention policy decides."""

    def wanted(self, subject: bytes) -> bool:
        """Whether a new message on this subject is kept at all."""
        ...

    def acknowledged(self, consumer: User, sequences: Sequence[int]) -> None:
        """``consumer`` is done with these: remove what need not stay."""
        ...

    def consumers_changed(self) -> None:
        """A consumer went or changed its filters; one that comes makes nothing superfluous."""
        ...


class LimitsRetention:
    """Messages stay until a limit removes them."""

    def wanted(self, subject: bytes) -> bool:
        return True

    def acknowledged(self, consumer: User, sequences: Sequence[int]) -> None:
        return

    def consumers_changed(self) -> None:
        return


class WorkQueueRetention(LimitsRetention):
    """A message leaves when its one consumer is done with it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def acknowledged(self, consumer: User, sequences: Sequence[int]) -> None:
        self._stream.remove_done(sequences)


class InterestRetention:
    """A message stays while some consumer whose filter matches is not done with it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._wanted: set[bytes] = set()  # subjects somebody wants, as far as asked

    def wanted(self, subject: bytes) -> bool:
        if subject in self._wanted:
            return True
        wanted = any(user.wants(subject) for user in self._users())
        if wanted:
            if len(self._wanted) >= _WANTED_MAX:
                self._wanted.clear()
            self._wanted.add(subject)
        return wanted

    def acknowledged(self, consumer: User, sequences: Sequence[int]) -> None:
        others = [user for user in self._users() if user is not consumer]
        self._stream.remove_done(list(self._unneeded(sequences, others)))

    def consumers_changed(self) -> None:
        """Walks the stream once: rare, and the only way to know what nobody waits for."""
        self._wanted.clear()
        self._stream.unread.attempt(self._sweep)

    def _sweep(self) -> None:
        stream = self._stream
        users = self._users()
        store = stream.store
        position = store.first_seq
        while messages := store.read(position, None, 1024, 1 << 24, store.last_seq):
            position = messages[-1].sequence + 1
            done = [
                message.sequence
                for message in messages
                if not any(u.needs(message.sequence, message.subject) for u in users)
            ]
            stream.remove_done(done)

    def _users(self) -> list[User]:
        """Who may need a message: consumers, and streams that copy from this one."""
        return [*self._stream.consumers.values(), *self._stream.readers]

    def _unneeded(self, sequences: Iterable[int], others: list[User]) -> Iterable[int]:
        for sequence in sequences:
            message = self._stream.store.get(sequence) if others else None
            if message is None or not any(o.needs(sequence, message.subject) for o in others):
                yield sequence


def retention_of(stream: Stream) -> Retention:
    """The policy a stream's configuration asks for."""
    if stream.config.retention == "workqueue":
        return WorkQueueRetention(stream)
    if stream.config.retention == "interest":
        return InterestRetention(stream)
    return LimitsRetention()
