"""How far a stream has come with what it copies, so that a restart goes on exactly there.

The positions are journaled by the flush that commits the messages. That flush writes the messages first,
so after a crash the journal may be older than they are, never newer: then the headers of the messages
stored since tell the rest: they do not say when the origin stored its message, but are a copy of it. Where
nothing waits for the disk (``interval``, ``os``), a power cut can take messages whose positions are there:
then as many are copied again as are lost. Of a mirror its own last sequence is the position, so only what
tells that its origin is still the same counts here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from .....api.streams import StreamSource, StreamSourceInfo
from .....documents import read_typed
from .....identity import Mark, with_mark
from ..config.sources import copies, index_name
from ..context import Context
from ..headers import read_origination
from ..stream.stream import Stream
from .copy import Copy, CopyPlace, MirrorCopy, SourceCopy, Touch

POSITIONS: Final = "intake/"
"""Keys of the journal: this and the name of the stream."""

_SCAN: Final = 1024
_SCAN_BYTES: Final = 1 << 24
_UNSAVED_MAX: Final = 8192  # messages whose headers a restart may have to look at
_REMEMBERED_MAX: Final = 1024  # sources taken out of a configuration: the oldest are forgotten


class _Saved(msgspec.Struct):
    """What the journal holds: positions as of the stream's sequence ``at``."""

    at: int = 0
    positions: dict[str, CopyPlace] = {}
    stream_ns: int = 0  # when the stream was made; 0 was written before this was noted


class _Flight(NamedTuple):
    """What a flush carries of one copy."""

    copy: Copy
    era: int
    origin: Stream | None
    position: int
    place: CopyPlace
    done: list[int]


class Positions:
    """The positions of one stream's sources, or of its mirror."""

    def __init__(
        self,
        stream: Stream,
        context: Context,
        make_copy: Callable[[type[SourceCopy | MirrorCopy], Stream, StreamSource, Touch], Copy],
        changed: Callable[[Positions], None],
    ) -> None:
        """``make_copy`` makes one of the copies; ``changed`` is told that a flush is to take part."""
        self._context = context
        self._stream = stream
        self._make_copy = make_copy
        self._changed = changed
        self.copies: dict[str, Copy] = {}
        self._durable: dict[str, CopyPlace] = {}
        self._flying: list[_Flight] = []
        self._flying_positions: dict[str, CopyPlace] = {}
        self._must_save = True  # the headers of stored messages do not tell all
        self._saved_at = 0  # the stream's last sequence when positions were journaled last …
        self._saved_gone = 0  # … and how many of its sequences had no message

    def restore(self, saved: bytes | None) -> None:
        """Take over what the journal says and the stream's messages since then."""
        entry = read_typed(saved, _Saved) if saved else _Saved()
        if entry.stream_ns not in (0, self._stream.created_ns):
            entry = _Saved()  # of another stream that had this name
        self._durable = entry.positions
        self._saved_at = entry.at
        if self._stream.config.mirror is not None:
            self._stream.copy_target.drop_placeholders()
            return
        store = self._stream.store
        lost = entry.at - store.last_seq
        newest = self._told(store.last_seq - _UNSAVED_MAX if lost > 0 else entry.at)
        if lost > 0:
            for source, place in self._durable.items():
                kept = newest[source].sequence if source in newest else 0
                self._durable[source] = place._replace(lost=place.lost + lost, kept=kept)
            return
        for source, told in newest.items():
            known = self._durable.get(source)
            if known is None or known.identity != told.identity:
                marks: tuple[Mark, ...] = ()
            elif known.stamp_ns:
                marks = with_mark(known.marks, (known.sequence, known.stamp_ns))
            else:
                marks = known.marks
            self._durable[source] = told._replace(marks=marks)

    def _told(self, after: int) -> dict[str, CopyPlace]:
        """What the headers of the stream's messages after a sequence say of each source."""
        store = self._stream.store
        found: dict[str, CopyPlace] = {}
        start = max(after, 0) + 1
        while messages := store.read(start, None, _SCAN, _SCAN_BYTES, store.last_seq):
            start = messages[-1].sequence + 1
            for message in messages:
                said = read_origination(message.headers)
                if said is not None:
                    found[said.source] = CopyPlace(
                        said.sequence, said.identity, told_at=message.sequence
                    )
        return found

    def configure(self) -> tuple[list[Copy], list[Copy]]:
        """Follow the stream's configuration; returns the copies that are new, and those that go."""
        config = self._stream.config
        kind = MirrorCopy if config.mirror is not None else SourceCopy
        positions = self._positions()
        before, self.copies = self.copies, {}
        fresh: list[Copy] = []
        for source in copies(config):
            index = index_name(source)
            copy = before.get(index)
            if copy is not None and type(copy) is kind:
                del before[index]
            else:
                copy = self._make_copy(kind, self._stream, source, self.touch)
                copy.stand(positions.get(index, CopyPlace(0, "")))
                fresh.append(copy)
            copy.follow(source)
            self.copies[index] = copy
        return fresh, list(before.values())

    def infos(self, *, fresh: bool = False) -> tuple[StreamSourceInfo, ...]:
        """How far each copy has come; see ``Copy.info``."""
        return tuple(copy.info(fresh=fresh) for copy in self.copies.values())

    def touch(self, *, save: bool = True) -> None:
        """A position has changed: the next flush commits it.

        It has to be journaled to ``save`` it, if no stored message tells it.
        """
        self._must_save = self._must_save or save
        self._changed(self)
        self._context.barrier.want_soon()

    # -- committing

    def stage(self) -> None:
        """Hand the positions to the flush that is about to start."""
        positions = self._flying_positions = self._positions()
        self._flying = [
            _Flight(copy, copy.era, copy.origin, copy.position, copy.place, copy.drain_done())
            for copy in self.copies.values()
        ]
        stream = self._stream
        if not self._has_to_save():
            return
        while len(positions) > len(self.copies) + _REMEMBERED_MAX:
            del positions[next(key for key in positions if key not in self.copies)]
        if stream.writable():
            self._must_save = False
            saved = _Saved(stream.store.last_seq, positions, stream.created_ns)
            self._context.storage.meta.put(POSITIONS + stream.name, msgspec.json.encode(saved))

    def _has_to_save(self) -> bool:
        """Whether a restart could not tell the positions from the newest messages.

        It can while none were removed. A stream that loses messages as they are done with has its
        positions journaled always: a crash must not bring back what was acknowledged.
        """
        stream, store = self._stream, self._stream.store
        if stream.config.storage != "file":
            return False
        if stream.config.mirror is not None:
            return self._must_save
        gone, self._saved_gone = self._saved_gone, store.last_seq - store.messages
        if (
            self._must_save
            or stream.config.retention != "limits"
            or gone != self._saved_gone
            or store.last_seq - self._saved_at > _UNSAVED_MAX
        ):
            self._saved_at = store.last_seq
            return True
        return False

    def committed(self) -> list[Copy]:
        """The flush is on disk: origins that wait for it may let go of what was copied.

        Returns the copies that may begin now.
        """
        self._durable = self._flying_positions
        flying, self._flying = self._flying, []
        for copy, era, origin, position, place, done in flying:
            if copy.era == era:
                copy.committed(position, place, done if copy.origin is origin else [])
        held = [copy for copy, *_ in flying if copy.is_held]
        for copy in held:
            copy.is_held = False
        return held

    def roll_back(self) -> None:
        """The flush failed and its messages are gone: so are the positions that led there."""
        self._flying = []
        for copy in self.copies.values():
            copy.roll_back()
        self.touch()  # what the journal was told already goes with the next flush, too

    def _positions(self) -> dict[str, CopyPlace]:
        positions = dict(self._durable)
        for index, copy in self.copies.items():
            if copy.place.identity:
                positions[index] = copy.place
        return positions
