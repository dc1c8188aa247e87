"""How messages leave a stream: by a limit, by age, on request, or because nobody needs them any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from .....api.streams import StreamConfig
from .....errors import StoreReadError
from .....subjects import SubjectFilter
from ...ports import Removal, StreamStore, Thinning
from ..context import Context
from ..tick.removals import SLICE, Limits, Purge

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer
    from ..sourcing.copy import Copy
    from ..sourcing.positions import Intake
    from ..tick.retry import Unread
    from .expiry import Expiry

__all__ = ["RemovingStream"]

_MUCH: Final = 1024  # so many removed are enough for a turn


class RemovingStream:
    """The half of a stream that takes messages away; see ``stream.Stream`` for the other one."""

    context: Context
    config: StreamConfig
    store: StreamStore
    consumers: dict[str, Consumer]
    expiry: Expiry
    holding: dict[Consumer, None]
    """Consumers with deliveries that are not acknowledged yet."""
    crowd: dict[Copy, None]
    """Copies that have something for this stream and found it full."""
    intake: Intake | None
    """What this stream copies, if anything."""
    crowded: dict[bytes, None]
    """Subjects that may have too many messages, until the end of the tick at most."""
    thinning: Thinning | None
    """A pass over the whole stream that brings each subject within the limit, while it is under way."""
    behind: Limits | None
    """What goes on with applying the limits, if that takes more than a turn."""
    is_closed: bool
    unread: Unread
    """What could not be done because the store cannot read now."""
    removals: int
    """Counts removals other than by acks and from the head: who counted messages counts anew."""

    def trim(self) -> None:
        """Apply every limit from now on, as after an update; ``behind`` while there is more to do."""
        if not self.writable():
            return
        limit = self.config.max_msgs_per_subject
        self.thinning = self.store.thinning(limit) if limit > 0 else None
        if self.behind is None:
            self.behind = Limits(self)
            self.context.removals.begin(self.behind)

    def catch_up(self) -> bool:
        """Remove some of what is beyond the limits; whether nothing is left to remove.

        Raises StoreReadError when the first that has to go cannot be read now.
        """
        if self.is_closed or not self.writable():
            return True
        limits = {"max_messages": self.config.max_msgs, "max_bytes": self.config.max_bytes}
        if self._trim_some(**limits) > _MUCH or not self.store.is_within(**limits):
            return False
        if not self.expiry.run():
            return False
        if self.thinning is not None:
            removed = self.thinning.run(SLICE)
            if removed:
                self._removed(removed)
            if not self.thinning.done:
                return False
            self.thinning = None
        return True

    def fall_behind(self) -> None:
        """There is more to remove than fits into this turn."""
        if self.behind is None:
            self.behind = Limits(self)
            self.context.removals.add(self.behind)

    def when_within(self, then: Callable[[Exception | None], None]) -> None:
        """Call when the limits are met, with the next flush, or wait for what cannot be read now; or have
        not been met, with an error.
        """
        if self.behind is None or self.behind.waits:
            then(None)
        else:
            self.behind.waiting.append(then)

    def trim_to_size(self) -> None:
        """Remove the oldest while there are too many, or too many bytes. Raises StoreReadError."""
        self.trim_head(max_messages=self.config.max_msgs, max_bytes=self.config.max_bytes)

    def expire(self) -> None:
        """Remove what has expired by now, and what is too much of its subject; later, if need be."""
        if self.writable() and not self.unread.holds:
            self.unread.attempt(self._remove_due)

    def _remove_due(self) -> None:
        if self.is_crowded:
            self._thin()
        if self.behind is None and not self.expiry.run():
            self.fall_behind()

    @property
    def is_crowded(self) -> bool:
        """Whether some subject may have too many messages."""
        return bool(self.crowded or self.store.superseded)

    def thin(self) -> None:
        """Bring the crowded subjects within the limit; later, if the store cannot read them now."""
        self.unread.attempt(self._thin)

    def _thin(self) -> None:
        crowded, self.crowded = self.crowded, {}
        if self.config.max_msgs_per_subject <= 0 or not self.writable():
            return
        removed: list[int] = []
        try:
            if self.store.superseded:
                removed += self.store.thin_superseded()
            if crowded:
                removed += self.store.thin(crowded, self.config.max_msgs_per_subject)
        except StoreReadError as error:
            removed += error.removed
            self.crowded = {**crowded, **self.crowded}
            raise
        finally:
            if removed:
                self._removed(removed)

    def remove(self, sequences: Sequence[int]) -> int:
        """Remove messages on request or by a limit; deliveries of them are over."""
        removed = self.store.remove(sequences)
        self._removed(sequences)
        return removed

    def remove_copied(self, sequences: Sequence[int]) -> None:
        """Remove messages that another stream has now, for good: a flush that fails brings none back."""
        self.remove(sequences)
        self._note_done(sequences)

    def remove_done(self, sequences: Sequence[int]) -> None:
        """Remove messages nobody needs any more; committed with the next flush."""
        if sequences and self.writable() and self.store.remove(sequences):
            self._note_done(sequences)
            self.context.gate.want_soon()
            if self.crowd or self.intake is not None:
                self.make_way()

    def purge(
        self,
        filter: SubjectFilter | None,
        below_seq: int = 0,
        keep: int = 0,
        then: Callable[[Exception | None], None] | None = None,
    ) -> Purge:
        """Remove by subject, sequence or count: as much as fits into this turn, and then the rest.

        ``then`` is told when all of it is done, or waits for what cannot be read now; or with an error
        that it will not be done.
        """
        removal = self.store.purging(filter, below_seq, keep)
        purge = Purge(self, removal, then, is_patient=True)
        self.context.removals.begin(purge)
        return purge

    def purge_some(self, removal: Removal) -> bool:
        """One slice of a purge; whether it was the last. Raises StoreError."""
        if removal.run(SLICE):
            self.removals += 1
            self.context.gate.want_soon()
            first, gone = self.store.first_seq, removal.gone
            for consumer in list(self.holding):
                consumer.acks.forget_below(first)
                consumer.acks.forget_gone(gone)
            if self.crowd or self.intake is not None:
                self.make_way()
        if removal.done and removal.removed:
            for consumer in self.consumers.values():
                consumer.state.skip_below(self.store.first_seq)
                consumer.touch()
        return removal.done

    def begin_at(self, sequence: int) -> None:
        """If the stream is empty and has not come so far, the next message gets this sequence."""
        if self.store.messages or sequence <= self.store.last_seq + 1:
            return
        self.store.reset_first(sequence)
        self.context.gate.want_soon()
        for consumer in self.consumers.values():
            consumer.state.skip_below(sequence)
            consumer.touch()

    def trim_head(self, *, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0) -> None:
        """Remove from the head until within the limits (-1 or 0: no limit). Raises StoreReadError."""
        if not self.writable() or self.behind is not None:
            return
        if self._trim_some(max_messages, max_bytes, before_ns) and not self.store.is_within(
            max_messages=max_messages, max_bytes=max_bytes, before_ns=before_ns
        ):
            self.fall_behind()

    def trim_old(self, before_ns: int) -> None:
        """Remove from the head some of what is older than that. Raises StoreReadError."""
        self._trim_some(before_ns=before_ns)

    def _trim_some(self, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0) -> int:
        removed = self.store.trim(
            max_messages=max_messages, max_bytes=max_bytes, before_ns=before_ns, work=SLICE
        )
        if removed:
            self.context.gate.want_soon()
            first = self.store.first_seq
            for consumer in list(self.holding):
                consumer.acks.forget_below(first)
            if self.crowd or self.intake is not None:
                self.make_way()
        return removed

    def writable(self) -> bool:
        """False once the store has failed: then limits rest, and monitoring shows the failure."""
        return self.context.storage.failed is None

    def make_way(self) -> None:
        """Messages are gone: whoever waits for room goes on, and positions have to be kept."""
        raise NotImplementedError

    def _removed(self, sequences: Sequence[int]) -> None:
        self.removals += 1
        self.context.gate.want_soon()
        for consumer in list(self.holding):
            consumer.acks.forget(sequences)
        if self.crowd or self.intake is not None:
            self.make_way()

    def _note_done(self, sequences: Sequence[int]) -> None:
        """Remember what is to be removed once more should the next flush fail."""
        raise NotImplementedError
