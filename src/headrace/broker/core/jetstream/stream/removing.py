"""The way out of one stream: by a limit, by age, on request, or because nobody needs a message any more.

``Removing`` takes messages out, and tells consumers and copies. ``SubjectLimit`` knows which subjects have
too many, a ``Retention`` what an acknowledgement leaves for nobody.

A stream that refuses no new messages enforces the limit of its subjects once per tick, before anything is
read: each new message marks its subject. If each subject keeps one, the store notes which message a new one
replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .....errors import StoreError, StoreReadError
from .....subjects import SubjectFilter
from ..config.stream import refuses_when_full
from ..tick.removals import SLICE, Limits, Purge

if TYPE_CHECKING:
    from ...ports import Removal, Thinning
    from ..ports import Copier, Reader, User
    from ..tick.retry import Unread
    from .stream import Stream

_LOOKS: Final = 8192  # so often a user is asked in a turn whether it needs a message …
_LOOKS_MIN: Final = 64  # … but at least about so many messages
_WANTED_MAX: Final = 32_768  # one more subject: the ones known are asked about anew
_MUCH: Final = 1024  # so many removed are enough for a turn


class SubjectLimit:
    """``max_msgs_per_subject`` of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.over: dict[bytes, None] = {}
        """Subjects that may have too many messages."""
        self.is_deferred = False
        """Whether the end of the tick is soon enough: until then it shows nowhere."""
        self.marks = False
        """Whether each new message may be one too many of its subject."""
        self._store_notes = False
        self._pass: Thinning | None = None

    def configure(self) -> None:
        stream, config = self._stream, self._stream.config
        bounds = stream.context.quota.bounds(config.storage)
        self.is_deferred = not (bounds or refuses_when_full(config))
        self.marks = config.max_msgs_per_subject > 1 and self.is_deferred
        self._store_notes = config.max_msgs_per_subject == 1 and self.is_deferred
        if self._store_notes != (stream.store.superseded is not None):
            stream.store.superseded = [] if self._store_notes else None

    @property
    def is_due(self) -> bool:
        """Whether some subject may have too many messages."""
        return bool(self.over or self._stream.store.superseded)

    def stored(self, subject: bytes) -> None:
        """One more message of a subject is stored."""
        if self._stream.config.max_msgs_per_subject > 0:
            if not self._store_notes:
                self.over[subject] = None
            if not self.is_deferred:
                self.enforce()

    def enforce(self) -> None:
        """Bring the marked subjects within the limit; later, if the store cannot read them now."""
        self._stream.unread.attempt(self.enforce_now)

    def enforce_now(self) -> None:
        """Enforce it at once. Raises StoreReadError; the subjects stay marked then."""
        over, self.over = self.over, {}
        stream, most = self._stream, self._stream.config.max_msgs_per_subject
        if most <= 0 or not stream.writable():
            return
        removed: list[int] = []
        try:
            if stream.store.superseded:
                removed += stream.store.thin_superseded()
            if over:
                removed += stream.store.thin(over, most)
        except StoreReadError as error:
            removed += error.removed
            self.over = {**over, **self.over}
            raise
        finally:
            if removed:
                stream.removing.removed(removed)

    def begin_pass(self) -> None:
        """Every subject is to be brought within the limit, some at a time, by ``pass_some``."""
        most = self._stream.config.max_msgs_per_subject
        self._pass = self._stream.store.thinning(most) if most > 0 else None

    def pass_some(self) -> bool:
        """Some of the pass; whether nothing is left of it. Raises StoreReadError."""
        if self._pass is None:
            return True
        removed = self._pass.run(SLICE)
        if removed:
            self._stream.removing.removed(removed)
        if not self._pass.done:
            return False
        self._pass = None
        return True


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


Then = Callable[[Exception | None], None]


class Removing:
    """Everything that takes messages out of one stream; consumers and copies are told."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._context = stream.context
        self.store = stream.store
        self.unread = stream.unread
        self._behind: Limits | None = None  # goes on with the limits, if they take more than a turn

    def writable(self) -> bool:
        """False once the store has failed: then limits rest, and monitoring shows the failure."""
        return self._context.storage.failed is None

    # -- limits

    def apply_limits(self) -> None:
        """Apply every limit from now on, as after an update; in slices, if there is much to do."""
        if self.writable():
            self._stream.subject_limit.begin_pass()
            if self._behind is None:
                self._behind = Limits(self)
                self._context.removals.begin(self._behind)

    def catch_up(self) -> bool:
        """Remove some of what is beyond the limits; whether nothing is left to remove.

        Raises StoreReadError when the first that has to go cannot be read now.
        """
        stream = self._stream
        if stream.is_closed or not self.writable():
            return True
        most = self._most()
        if most and (self._trim_some(**most) > _MUCH or not self.store.is_within(**most)):
            return False
        return stream.expiry.remove_due() and stream.subject_limit.pass_some()

    def caught_up(self) -> None:
        """The limits are met, or catching up was given up."""
        self._behind = None

    def when_within(self, then: Then) -> None:
        """Call when the limits are met, with the next flush, or wait for what cannot be read now; or have
        not been met, with an error.
        """
        if self._behind is None or self._behind.waits:
            then(None)
        else:
            self._behind.waiting.append(then)

    def trim_to_size(self) -> None:
        """Remove the oldest while there are too many, or too many bytes. Raises StoreReadError."""
        if not self.writable() or self._behind is not None:
            return
        most = self._most()
        if most and self._trim_some(**most) and not self.store.is_within(**most):
            self._fall_behind()

    def _most(self) -> dict[str, int]:
        """What the oldest make room for; a stream that refuses new messages keeps what it has."""
        config = self._stream.config
        if config.discard != "old":
            return {}
        return {"max_messages": config.max_msgs, "max_bytes": config.max_bytes}

    def trim_old(self, before_ns: int) -> None:
        """Remove from the head some of what is older than that. Raises StoreReadError."""
        self._trim_some(before_ns=before_ns)

    def expire(self) -> None:
        """Remove what has expired by now, and what is too much of its subject; later, if need be."""
        if self.writable() and not self.unread.holds:
            self.unread.attempt(self._expire)

    def _expire(self) -> None:
        limit = self._stream.subject_limit
        if limit.is_due:
            limit.enforce_now()
        if self._behind is None and not self._stream.expiry.remove_due():
            self._fall_behind()

    @property
    def is_behind(self) -> bool:
        """Whether there may be messages that should have left."""
        return self._behind is not None

    def _fall_behind(self) -> None:
        """There is more to remove than fits into this turn."""
        if self._behind is None:
            self._behind = Limits(self)
            self._context.removals.add(self._behind)

    def _trim_some(self, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0) -> int:
        removed = self.store.trim(
            max_messages=max_messages, max_bytes=max_bytes, before_ns=before_ns, work=SLICE
        )
        if removed:
            self._context.barrier.want_soon()
            first = self.store.first_seq
            self._stream.messages_left(below=first)
            for reader in list(self._stream.holding):
                reader.acks.forget_below(first)
            self._stream.copy_target.made_room()
        return removed

    # -- on request

    def remove(self, sequences: Sequence[int]) -> int:
        """Remove messages on request or by a limit; deliveries of them are over."""
        removed = self.store.remove(sequences)
        self.removed(sequences)
        return removed

    def purge(self, filter: SubjectFilter | None, below_seq: int = 0) -> Purge:
        """Remove by subject or sequence, for a message that was just stored: it waits if it has to.

        As much as fits into this turn, and then the rest.
        """
        removal = self.store.purging(filter, below_seq)
        return self.carry_out(removal, is_patient=True)

    def roll_up(self, subject: bytes, below_seq: int) -> Purge | None:
        """Remove what a subject had before the message that was just stored; what still is to be waited for.

        Mostly that is one message, as the one before rolled up, too: the index names it. A purge would look
        for it in each segment.
        """
        with suppress(StoreError):  # of what cannot be read now, or removed, the purge sees the end
            if self._is_rolled_up(subject, below_seq):
                return None
        return self.purge(SubjectFilter.of_stored(subject), below_seq)

    def _is_rolled_up(self, subject: bytes, last_seq: int) -> bool:
        """Remove the one message that a subject had before, if it had no more. Raises StoreError."""
        state = self.store.subject(subject)
        if state is None or state.last_seq != last_seq or state.count > 2:
            return False
        if state.count == 2:
            self.remove([state.first_seq])
            self._skip_below(self.store.first_seq)
        return True

    def carry_out(
        self, removal: Removal, then: Then | None = None, *, is_patient: bool = False
    ) -> Purge:
        """Begin a purge. ``then`` is told of its end, or with an error that it will not be done."""
        purge = Purge(self, removal, then, is_patient=is_patient)
        self._context.removals.begin(purge)
        return purge

    def purge_some(self, removal: Removal) -> bool:
        """One slice of a purge; whether it was the last. Raises StoreError."""
        stream = self._stream
        if removal.run(SLICE):
            stream.removals += 1
            self._context.barrier.want_soon()
            first, gone = self.store.first_seq, removal.gone
            stream.messages_left(gone, below=first)
            for reader in list(stream.holding):
                reader.acks.forget_below(first)
                reader.acks.forget_gone(gone)
            stream.copy_target.made_room()
        if removal.done and removal.removed:
            self._skip_below(self.store.first_seq)
        return removal.done

    def begin_at(self, sequence: int) -> None:
        """If the stream is empty and has not come so far, the next message gets this sequence."""
        if self.store.messages or sequence <= self.store.last_seq + 1:
            return
        self.store.reset_first(sequence)
        self._context.barrier.want_soon()
        self._skip_below(sequence)

    def _skip_below(self, sequence: int) -> None:
        reader: Reader
        for reader in self._stream.consumers.values():
            reader.state.skip_below(sequence)
            reader.touch()

    def removed(self, sequences: Sequence[int]) -> None:
        stream = self._stream
        stream.removals += 1
        stream.messages_left(sequences)
        self._context.barrier.want_soon()
        for reader in list(stream.holding):
            reader.acks.forget(sequences)
        stream.copy_target.made_room()

    # -- because nobody needs them

    def remove_done(self, sequences: Sequence[int]) -> None:
        """Remove messages nobody needs any more; committed with the next flush."""
        if sequences and self.writable() and self.store.remove(sequences):
            self._stream.messages_left(sequences)
            marks = self._stream.marks
            marks.removed.setdefault(self._stream, []).extend(sequences)  # should the flush fail
            self._context.barrier.want_soon()
            self._stream.copy_target.made_room()
