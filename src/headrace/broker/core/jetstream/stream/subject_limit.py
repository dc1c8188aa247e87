"""How many messages of each subject a stream keeps.

A stream that refuses no new messages enforces the limit once per tick, before anything is read: each new
message marks its subject. If each subject keeps one, the store notes which message a new one replaces.
"""

from __future__ import annotations

from typing import Protocol

from .....api.streams import StreamConfig
from .....errors import StoreReadError
from ...ports.storage import StreamStore, Thinning
from ..config.stream import refuses_when_full
from ..context import Context
from ..tick.removals import SLICE
from ..tick.retry import Unread
from .removing import Removing


class Limited(Protocol):
    """A stream, as its limits know it; see ``stream.Stream``."""

    config: StreamConfig
    context: Context
    store: StreamStore
    unread: Unread

    @property
    def removing(self) -> Removing: ...
    def writable(self) -> bool: ...


class SubjectLimit:
    """``max_msgs_per_subject`` of one stream."""

    def __init__(self, stream: Limited) -> None:
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
