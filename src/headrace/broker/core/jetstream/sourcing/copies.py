"""All copying between the streams of an engine: which copy reads which stream, whose turn it is, and commits.

Copies take turns of a bounded number of messages in each tick, so that publishing and delivering go on
while a long catch-up runs, and none are taken while too much is on its way to the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from .....api.errors import Errors, ErrorSpec
from .....api.streams import StreamSource
from .....errors import StoreReadError
from ...timers import Timer
from ..context import Context
from ..stream.stream import Stream
from ..tick.flush_barrier import store_refusal
from .copy import Copy, MirrorCopy, SourceCopy, Touch
from .positions import POSITIONS, Positions

_TICK_MESSAGES: Final = 256
_TURN_MESSAGES: Final = 128
_TURN_COST: Final = 8  # what a turn counts at least, in messages
_STAGED_MAX: Final = 1024 * 1024  # bytes on their way to the disk: copying waits; so do others
_RETRY_NS: Final = 2_000_000_000  # a copy that failed for a reason of its own tries again


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
        positions = self._positions_of(stream)
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
            self._configure(self._keep(stream, self._positions_of(stream)))
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
            positions = self._keep(stream, self._positions_of(stream))
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

    def _positions_of(self, stream: Stream) -> Positions:
        """Positions that nobody has written to yet."""
        return Positions(stream, self.context, self._make_copy, self._note_changed)

    def _make_copy(
        self,
        kind: type[SourceCopy | MirrorCopy],
        stream: Stream,
        source: StreamSource,
        touch: Touch,
    ) -> Copy:
        return kind(self, stream, source, touch)

    def _note_changed(self, positions: Positions) -> None:
        self.dirty[positions] = None

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
