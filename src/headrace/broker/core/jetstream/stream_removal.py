"""How messages leave a stream: by a limit, by age, on request, or because nobody needs them any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....api.streams import StreamConfig
from ....errors import StoreReadError
from ....subjects import SubjectFilter
from ..ports import StreamStore
from .context import Context

if TYPE_CHECKING:
    from .consumer import Consumer
    from .copying import Copy
    from .expiry import Expiry
    from .intake import Intake
    from .unread import Unread

__all__ = ["RemovingStream"]


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
    unread: Unread
    """What could not be done because the store cannot read now."""
    removals: int
    """Counts removals other than by acks and from the head: who counted messages counts anew."""

    def trim(self) -> None:
        """Apply every limit now, as after an update."""
        self.unread.attempt(self.trim_to_size)
        self.expire()
        config = self.config
        if config.max_msgs_per_subject > 0:
            self.thin_all()

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
        self.expiry.run()

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

    def thin_all(self) -> None:
        """Bring every subject within the limit; later, if the store cannot read them now."""
        self.unread.attempt(self._thin_all)

    def _thin_all(self) -> None:
        limit = self.config.max_msgs_per_subject
        subjects = self.store.subjects(None)
        self.crowded = dict.fromkeys([s for s, state in subjects if state.count > limit])
        self._thin()

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

    def purge(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> int:
        """Remove by subject, sequence or count; returns how many."""
        purged = self.store.purge(filter, below_seq, keep)
        if purged:
            self.removals += 1
            self.context.gate.want_soon()
            for consumer in list(self.holding):
                consumer.acks.forget_missing()
            for consumer in self.consumers.values():
                consumer.state.skip_below(self.store.first_seq)
                consumer.touch()
            if self.crowd or self.intake is not None:
                self.make_way()
        return purged

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
        if not self.writable():
            return
        removed = self.store.trim(
            max_messages=max_messages, max_bytes=max_bytes, before_ns=before_ns
        )
        if removed:
            self.context.gate.want_soon()
            first = self.store.first_seq
            for consumer in list(self.holding):
                consumer.acks.forget_below(first)
            if self.crowd or self.intake is not None:
                self.make_way()

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
