"""How messages leave a stream: by a limit, by age, on request, or because nobody needs them any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .....errors import StoreError
from .....subjects import SubjectFilter
from ..tick.removals import SLICE, Limits, Purge

if TYPE_CHECKING:
    from ...ports.storage import Removal
    from ..ports import Reader
    from .stream import Stream

_MUCH: Final = 1024  # so many removed are enough for a turn

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
