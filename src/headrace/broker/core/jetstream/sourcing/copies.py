"""All copying between the streams of an engine: which copy reads which stream, whose turn it is, and commits.

Copies take turns of a bounded number of messages in each tick, so that publishing and delivering go on
while a long catch-up runs, and none are taken while too much is on its way to the disk.

``Positions`` say how far a stream has come with what it copies, so that a restart goes on exactly there.
The positions are journaled by the flush that commits the messages. That flush writes the messages first,
so after a crash the journal may be older than they are, never newer: then the headers of the messages
stored since tell the rest: they do not say when the origin stored its message, but are a copy of it. Where
nothing waits for the disk (``interval``, ``os``), a power cut can take messages whose positions are there:
then as many are copied again as are lost. Of a mirror its own last sequence is the position, so only what
tells that its origin is still the same counts here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamSource, StreamSourceInfo
from .....documents import read_typed
from .....errors import StoreReadError
from .....identity import Mark, with_mark
from ...timers import Timer
from ..config.sources import copies, index_name
from ..context import Context
from ..headers import read_origination
from ..stream.stream import Stream
from ..tick.flush_barrier import store_refusal
from .copy import Copy, CopyPlace, MirrorCopy, SourceCopy

POSITIONS: Final = "intake/"
"""Keys of the journal: this and the name of the stream."""

_SCAN: Final = 1024
_SCAN_BYTES: Final = 1 << 24
_UNSAVED_MAX: Final = 8192  # messages whose headers a restart may have to look at
_REMEMBERED_MAX: Final = 1024  # sources taken out of a configuration: the oldest are forgotten
_TICK_MESSAGES: Final = 256
_TURN_MESSAGES: Final = 128
_TURN_COST: Final = 8  # what a turn counts at least, in messages
_STAGED_MAX: Final = 1024 * 1024  # bytes on their way to the disk: copying waits; so do others
_RETRY_NS: Final = 2_000_000_000  # a copy that failed for a reason of its own tries again


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

    def __init__(self, stream: Stream, manager: Copies) -> None:
        self._context = manager.context
        self._stream = stream
        self._manager = manager
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
                copy = kind(self._manager, self._stream, source, self.touch)
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
        self._manager.dirty[self] = None
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


class Reach(NamedTuple):
    """Whose streams a source means, or why there are none."""

    copies: Copies | None
    error: ErrorSpec | None = None


class Elsewhere(Protocol):
    """Finds whose streams an external source means, as imports and exports allow it now."""

    def __call__(self, source: StreamSource, *, is_mirror: bool) -> Reach: ...


class Copies:
    """The sources and mirrors of one engine's streams."""

    def __init__(
        self,
        context: Context,
        streams: dict[str, Stream],
        restart_consumer: Callable[[Stream, str, int], None],
    ) -> None:
        self.context = context
        self._streams = streams
        self.restart_consumer = restart_consumer
        """Have a consumer of a stream of ours, by its name, begin anew at a sequence."""
        self.elsewhere: Elsewhere | None = None
        """Finds the streams of other accounts; None where there are none."""
        self.ready: dict[Copy, None] = {}
        """Copies with something to copy, in the order of their turns."""
        self.dirty: dict[Positions, None] = {}
        """Those that changed since the last flush started."""
        self._flying: dict[Positions, None] = {}
        self._wanted: dict[str, dict[Copy, None]] = {}  # by the name of the origin
        self._positions: dict[Stream, Positions] = {}
        self._turn: Timer | None = None
        self._unrestored: set[Stream] = set()  # where their copies stand cannot be read yet
        self._failing: dict[Copy, None] = {}
        self._retry: Timer | None = None

    # -- streams come, change and go

    def recovered(self, stream: Stream, saved: bytes | None) -> None:
        """A stream was opened again, with what was ``saved`` of its positions."""
        config = stream.config
        if config.mirror is not None or config.sources or saved:
            self._unrestored.add(stream)
            stream.unread.attempt(partial(self._restore, stream, saved))
        self.opened(stream)

    def _restore(self, stream: Stream, saved: bytes | None) -> None:
        """Find out how far the copies of a stream have come. Raises StoreReadError."""
        positions = Positions(stream, self)
        positions.restore(saved)
        self._unrestored.discard(stream)
        self._keep(stream, positions)
        for copy in self._configure(positions):
            copy.is_held = False
            if copy.is_behind:
                self.make_ready(copy)

    def all_recovered(self) -> None:
        """Every stream was opened again: origins let go of what they only held for the power cut."""
        for stream in self._streams.values():
            for copy in self._reading(stream):
                copy.let_go()

    def opened(self, stream: Stream) -> None:
        """There is a stream."""
        config = stream.config
        copies = config.mirror is not None or config.sources
        if stream not in self._positions and copies and stream not in self._unrestored:
            self._configure(self._keep(stream, Positions(stream, self)))
        for copy in self._wanted.get(stream.name, ()):
            if copy.origin is None:
                copy.manager.attach(copy, stream)

    def changed(self, stream: Stream) -> None:
        config = stream.config
        if stream in self._unrestored:
            return  # it will find the configuration as it is then
        positions = self._positions.get(stream)
        if positions is None:
            if not config.sources:
                return
            positions = self._keep(stream, Positions(stream, self))
        for copy in self._configure(positions):
            copy.begin_no_earlier()
        self._look_again(positions)  # where it may deliver to can be another prefix now
        for copy in positions.copies.values():
            if copy.is_idle or copy.feed is not None:
                self.go_on(copy)
        stream.copy_target.made_room()

    def closed(self, stream: Stream) -> None:
        """A stream is no more: neither does it copy, nor is it copied from."""
        self._unrestored.discard(stream)
        positions = self._positions.pop(stream, None)
        if positions is not None:
            for copy in positions.copies.values():
                self._drop(copy)
            self.dirty.pop(positions, None)
            self._flying.pop(positions, None)
            stream.copy_target.positions = None
            if self.context.storage.failed is None:
                self.context.storage.meta.delete(POSITIONS + stream.name)
        for copy in self._wanted.get(stream.name, ()):
            if copy.origin in (stream, None):  # or it would not take from that one
                copy.manager.lose(copy)

    def _keep(self, stream: Stream, positions: Positions) -> Positions:
        self._positions[stream] = stream.copy_target.positions = positions
        return positions

    def _reading(self, stream: Stream) -> list[Copy]:
        """The copies of any account that read a stream of ours."""
        return [copy for copy in self._wanted.get(stream.name, ()) if copy.origin is stream]

    def consumer_came(self, stream: Stream, name: str) -> None:
        """There is a consumer: copies that were told to use it may begin."""
        for copy in self._reading(stream):
            if copy.feed is not None and copy.feed.name == name:
                copy.go_on()

    def consumer_left(self, stream: Stream, name: str) -> None:
        """A consumer is no more: copies that use it have nothing to copy."""
        for copy in self._reading(stream):
            if copy.feed is not None and copy.feed.name == name:
                copy.feed.stop()
                copy.error = Errors.CONSUMER_NOT_FOUND

    def look_again_elsewhere(self) -> None:
        """Imports and exports may have changed: find every stream of another account anew."""
        for positions in self._positions.values():
            self._look_again(positions)

    def _look_again(self, positions: Positions) -> None:
        for copy in positions.copies.values():
            if copy.source.external is None:
                continue
            reach = self._reach(copy)
            if reach.copies is not copy.home:
                self._unlink(copy)
                self._link(copy, reach)
            elif reach.copies is None:
                copy.error = reach.error

    def mirror_of(self, name: str) -> Stream | None:
        """A mirror that may answer for a stream that is away."""
        for copy in self._wanted.get(name, ()):
            is_ours = copy.manager is self
            if is_ours and isinstance(copy, MirrorCopy) and copy.target.config.mirror_direct:
                return copy.target
        return None

    def _configure(self, positions: Positions) -> list[Copy]:
        """Follow the configuration; returns the copies that are new."""
        fresh, gone = positions.configure()
        for copy in gone:
            self._drop(copy)
        for copy in fresh:
            self._link(copy, self._reach(copy))
        if fresh or gone:
            positions.touch()
        return fresh

    def _reach(self, copy: Copy) -> Reach:
        """Whose stream a copy reads."""
        if copy.source.external is None:
            return Reach(self)
        elsewhere = self.elsewhere
        if elsewhere is None:  # accounts are not complete yet: they say when they are
            return Reach(None, Errors.STREAM_NOT_FOUND)
        return elsewhere(copy.source, is_mirror=isinstance(copy, MirrorCopy))

    def _link(self, copy: Copy, reach: Reach) -> None:
        """Have a copy hear of its origin."""
        home = copy.home = reach.copies
        if home is None:
            copy.error = reach.error
            return
        copy.error = Errors.STREAM_NOT_FOUND
        home._wanted.setdefault(copy.source.name, {})[copy] = None
        origin = home._streams.get(copy.source.name)
        if origin is not None:
            self.attach(copy, origin)
            if home is not self:
                copy.let_go()

    def _unlink(self, copy: Copy) -> None:
        origin, home = copy.origin, copy.home
        self.lose(copy)
        if home is not None:
            wanted = home._wanted.get(copy.source.name, {})
            wanted.pop(copy, None)
            if not wanted:
                home._wanted.pop(copy.source.name, None)
        copy.home = None
        if origin is not None:
            origin.unread.attempt(origin.retention.copy_left)

    def attach(self, copy: Copy, origin: Stream) -> None:
        """A copy of ours has found its origin."""
        origin.unread.attempt(partial(self._attach, copy, origin))

    def _attach(self, copy: Copy, origin: Stream) -> None:
        home = copy.home
        if copy.origin is not None or home is None or copy not in home._wanted.get(origin.name, ()):
            return
        try:
            copy.attach(origin)
        except StoreReadError as error:
            copy.error = store_refusal(error)
            raise
        if copy.is_behind:
            self.make_ready(copy)

    def lose(self, copy: Copy) -> None:
        """A copy of ours has its origin no more."""
        copy.detach()
        self.ready.pop(copy, None)

    def _drop(self, copy: Copy) -> None:
        self._unlink(copy)
        self._failing.pop(copy, None)
        copy.target.copy_target.waiting.pop(copy, None)

    # -- turns

    def go_on(self, copy: Copy) -> None:
        """What was in a copy's way may be gone."""
        copy.is_idle = False
        self._failing.pop(copy, None)
        if copy.is_behind:
            self.make_ready(copy)

    def make_ready(self, *copies: Copy) -> None:
        """Copies of ours have something to do in the next tick."""
        for copy in copies:
            if not copy.is_held:
                self.ready[copy] = None
        if self.ready:
            # A tick is due in any case when input or the disk woke them, but not in all.
            self.want_tick()

    def want_tick(self) -> None:
        """Have another tick soon: something in this account is ready that was not when its turn came."""
        if self._turn is None:
            clock = self.context.clock
            self._turn = self.context.timers.call_at(clock.monotonic_ns(), self._turn_is_due)

    def _turn_is_due(self) -> None:
        """Do nothing: it is a reason for a tick."""
        self._turn = None

    def copy_some(self) -> None:
        """Copy as much as one tick may take."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        left = _TICK_MESSAGES
        storage = self.context.storage
        while self.ready and left > 0:
            if storage.pending_bytes > _STAGED_MAX:
                return  # the tick after the next flush goes on
            copy = next(iter(self.ready))
            del self.ready[copy]
            left -= max(copy.turn(min(left, _TURN_MESSAGES)), _TURN_COST)
            if copy.is_idle:
                if copy.error is not None:
                    self.try_later(copy)
            elif copy.is_behind:
                self.ready[copy] = None
        self.make_ready()

    def try_later(self, copy: Copy) -> None:
        """A copy can not go on: let it try in a while."""
        self._failing[copy] = None
        if self._retry is None:
            deadline_ns = self.context.clock.monotonic_ns() + _RETRY_NS
            self._retry = self.context.timers.call_at(deadline_ns, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        failing, self._failing = self._failing, {}
        for copy in failing:
            self.go_on(copy)

    # -- commits

    def stage(self) -> None:
        """A flush starts: hand it the positions."""
        self._flying, self.dirty = self.dirty, {}
        for positions in self._flying:
            positions.stage()

    def completed(self, error: Exception | None) -> None:
        flying, self._flying = self._flying, {}
        if error is None:
            for positions in flying:
                self.make_ready(*[copy for copy in positions.committed() if copy.is_behind])
            return
        for positions in {**flying, **self.dirty}:
            positions.roll_back()
            for copy in positions.copies.values():
                self.ready.pop(copy, None)
                copy.is_held = False
                copy.is_idle = True
                self.try_later(copy)
