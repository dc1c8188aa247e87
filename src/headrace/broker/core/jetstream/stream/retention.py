"""When an acknowledged message leaves the stream: never, at its ack, or when nobody needs it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from .....errors import StoreReadError
from ...ports.storage import Removal

if TYPE_CHECKING:
    from ..ports import Copier, User
    from ..tick.retry import Unread
    from .stream import Stream

_LOOKS: Final = 8192  # so often a user is asked in a turn whether it needs a message …
_LOOKS_MIN: Final = 64  # … but at least about so many messages
_WANTED_MAX: Final = 32_768  # one more subject: the ones known are asked about anew


class Retention:
    """What a retention policy decides; this one is ``limits``: messages stay until a limit removes them."""

    def wanted(self, subject: bytes) -> bool:
        """Whether a new message on this subject is kept at all."""
        return True

    def acknowledged(self, consumer: User, sequences: Sequence[int]) -> None:
        """``consumer`` is done with these: remove what need not stay. Raises StoreReadError."""

    def passed(self, sequences: Sequence[int]) -> None:
        """These were acknowledged where they are not pending: remove what nobody needs. Raises
        StoreReadError."""

    def consumers_changed(self) -> None:
        """A consumer went or changed its filters; one that comes makes nothing superfluous."""

    def copy_left(self) -> None:
        """A copy reads this stream no more."""

    def copied(self, copy: Copier, first: int, last: int) -> None:
        """After a restart: ``copy`` has had what it wants of these. Some may be there only because the
        power went before they left."""


class _Removing(Retention):
    """Messages leave when nobody needs them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def passed(self, sequences: Sequence[int]) -> None:
        there = [each for each in dict.fromkeys(sequences) if self._stream.store.holds(each)]
        self._stream.removing.remove_done(list(self._unneeded(there, self._users())))

    def copied(self, copy: Copier, first: int, last: int) -> None:
        self._stream.context.removals.add(_Copied(self._stream, self, copy, first, last))

    def _users(self) -> list[User]:
        """Who may need a message: consumers, and streams that copy from this one."""
        return [*self._stream.consumers.values(), *self._stream.copiers]

    def _unneeded(self, sequences: Iterable[int], others: list[User]) -> Iterable[int]:
        for sequence in sequences:
            message = self._stream.store.get(sequence) if others else None
            if message is None or not any(o.needs(sequence, message.subject) for o in others):
                yield sequence


class WorkQueueRetention(_Removing):
    """A message leaves when its one consumer, if it has one, and every copy are done with it."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._handled: set[int] = set()  # those that are only there for copies

    def acknowledged(self, consumer: User, sequences: Sequence[int]) -> None:
        stream = self._stream
        if not stream.copiers:
            stream.removing.remove_done(sequences)
            return
        others = [user for user in self._users() if user is not consumer]
        done = list(self._unneeded(sequences, others))
        stream.removing.remove_done(done)
        if consumer in stream.copiers:
            self._handled.difference_update(done)
        else:
            self._handled.update(sequences)
            self._handled.difference_update(done)

    def copy_left(self) -> None:
        handled = sorted(self._handled)
        there = self._stream.store.present(handled)
        done = list(self._unneeded(there, [*self._stream.copiers]))
        self._handled.difference_update(done)
        self._stream.removing.remove_done(done)


class InterestRetention(_Removing):
    """A message stays while some consumer whose filter matches is not done with it."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._wanted: set[bytes] = set()  # subjects that a user wants, as far as asked
        self._sweep: _Sweep | None = None

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
        self._stream.removing.remove_done(list(self._unneeded(sequences, others)))

    def consumers_changed(self) -> None:
        """Walks the stream, some at a time: rare, and the only way to know what is no longer needed."""
        self._wanted.clear()
        if self._sweep is not None:
            self._sweep.restart()
            return
        self._sweep = _Sweep(self._stream, self._users, self._swept)
        self._stream.context.removals.begin(self._sweep)

    def copy_left(self) -> None:
        self.consumers_changed()

    def _swept(self) -> None:
        self._sweep = None


class _Sweep:
    """One walk through a stream; a task of ``removals``."""

    def __init__(
        self, stream: Stream, users: Callable[[], list[User]], swept: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._users = users
        self._swept = swept
        self._next = 0
        self._everything: Removal | None = None

    def restart(self) -> None:
        self._next = 0

    def step(self) -> bool:
        stream = self._stream
        if stream.is_closed or not stream.writable():
            return True
        users = self._users()
        if not users:  # nothing is needed
            if self._everything is None:
                self._everything = stream.store.purging(None)
            return stream.removing.purge_some(self._everything)
        self._everything = None
        headings = stream.store.headings(self._next, max(_LOOKS_MIN, _LOOKS // len(users)))
        done = [
            sequence
            for sequence, subject in headings
            if not any(user.needs(sequence, subject) for user in users)
        ]
        stream.removing.remove_done(done)
        if headings:
            self._next = headings[-1][0] + 1
        return not headings

    def stall(self, error: StoreReadError) -> Unread | None:
        return self._stream.unread

    def end(self, error: Exception | None) -> None:
        self._swept()


class _Copied:
    """A walk through what a copy has had, as ``Retention.copied`` says; a task of ``removals``."""

    def __init__(
        self, stream: Stream, retention: Retention, copy: Copier, first: int, last: int
    ) -> None:
        self._stream = stream
        self._retention = retention
        self._copy = copy
        self._next = first
        self._last = last

    def step(self) -> bool:
        stream, copy = self._stream, self._copy
        if stream.is_closed or copy not in stream.copiers or not stream.writable():
            return True
        headings = stream.store.headings(self._next, _LOOKS)
        had = [seq for seq, subject in headings if seq <= self._last and copy.wants(subject)]
        self._retention.acknowledged(copy, had)
        if headings:
            self._next = headings[-1][0] + 1
        return not headings or self._next > self._last

    def stall(self, error: StoreReadError) -> Unread | None:
        return self._stream.unread

    def end(self, error: Exception | None) -> None:
        """Nobody waits for it."""


def retention_of(stream: Stream) -> Retention:
    """The policy a stream's configuration asks for."""
    if stream.config.retention == "workqueue":
        return WorkQueueRetention(stream)
    if stream.config.retention == "interest":
        return InterestRetention(stream)
    return Retention()
