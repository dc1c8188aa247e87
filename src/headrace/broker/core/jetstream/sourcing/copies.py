"""All copying between the streams of an engine: who copies from whom, whose turn it is, what is committed.

Copies take turns of a bounded number of messages in each tick, so that publishing and delivering go on
while a long catch-up runs, and none are taken while too much is on its way to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from .....api.errors import Errors
from ...ports import Timer
from .copy import Copy, MirrorCopy
from .origins import Reach
from .positions import INTAKE, Intake

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer
    from ..context import Context
    from ..stream.stream import Stream

__all__ = ["Copies"]

_TICK_MESSAGES: Final = 256
_TURN_MESSAGES: Final = 128
_TURN_COST: Final = 8  # what a turn counts at least, in messages
_STAGED_MAX: Final = 1024 * 1024  # bytes on their way to the disk: copying waits; so do others
_RETRY_NS: Final = 2_000_000_000  # who could not go on for a reason of its own tries again


class Copies:
    """The sources and mirrors of one engine's streams."""

    def __init__(
        self,
        context: Context,
        streams: dict[str, Stream],
        restart_consumer: Callable[[Consumer, int], None],
    ) -> None:
        self._context = context
        self._streams = streams
        self.restart_consumer = restart_consumer
        """Have a consumer of ours begin anew at a sequence."""
        self.ready: dict[Copy, None] = {}
        """Copies with something to copy, in the order of their turns."""
        self.dirty: dict[Intake, None] = {}
        """Intakes whose positions changed since the last flush started."""
        self._flying: dict[Intake, None] = {}
        self._wanted: dict[str, dict[Copy, None]] = {}  # by the name of the origin
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
        intake = Intake(self._context, stream, self)
        intake.restore(saved)
        self._unrestored.discard(stream)
        stream.intake = intake
        for copy in self._configure(intake):
            copy.is_held = False
            if copy.is_behind:
                self._make_ready((copy,))

    def all_recovered(self) -> None:
        """Every stream was opened again: origins let go of what they only held for the power cut."""
        for stream in self._streams.values():
            for copy in list(stream.readers):
                copy.let_go()
            if stream.readers:
                stream.retention.consumers_changed()

    def opened(self, stream: Stream) -> None:
        """There is a stream."""
        config = stream.config
        copies = config.mirror is not None or config.sources
        if stream.intake is None and copies and stream not in self._unrestored:
            stream.intake = Intake(self._context, stream, self)
            self._configure(stream.intake)
        for copy in self._wanted.get(stream.name, ()):
            if copy.origin is None:
                copy.context.copies.attach(copy, stream)

    def changed(self, stream: Stream) -> None:
        """A stream has another configuration."""
        config = stream.config
        if stream in self._unrestored:
            return  # it will find the configuration as it is then
        if stream.intake is None:
            if not config.sources:
                return
            stream.intake = Intake(self._context, stream, self)
        self._configure(stream.intake)
        self._look_again(stream.intake)  # where it may deliver to can be another prefix now
        for copy in stream.intake.copies.values():
            if copy.is_idle or copy.feed is not None:
                self.go_on(copy)
        stream.make_way()

    def closed(self, stream: Stream) -> None:
        """A stream is no more: neither does it copy, nor is it copied from."""
        self._unrestored.discard(stream)
        if stream.intake is not None:
            for copy in stream.intake.copies.values():
                self._drop(copy)
            self.dirty.pop(stream.intake, None)
            self._flying.pop(stream.intake, None)
            stream.intake = None
            if self._context.storage.failed is None:
                self._context.storage.meta.delete(INTAKE + stream.name)
        for copy in list(stream.readers):
            copy.context.copies.lose(copy)

    def consumer_came(self, stream: Stream, name: str) -> None:
        """There is a consumer: who was told to copy through it may begin."""
        for copy in stream.readers:
            if copy.feed is not None and copy.feed.name == name:
                copy.context.copies.go_on(copy)

    def consumer_left(self, stream: Stream, name: str) -> None:
        """A consumer is no more: who copies through it has nothing to copy."""
        for copy in stream.readers:
            if copy.feed is not None and copy.feed.name == name:
                copy.feed.stop()
                copy.error = Errors.CONSUMER_NOT_FOUND

    def look_again_elsewhere(self) -> None:
        """Imports and exports may have changed: find every stream of another account anew."""
        for stream in self._streams.values():
            if stream.intake is not None:
                self._look_again(stream.intake)

    def _look_again(self, intake: Intake) -> None:
        for copy in intake.copies.values():
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
            is_ours = copy.context is self._context
            if is_ours and isinstance(copy, MirrorCopy) and copy.target.config.mirror_direct:
                return copy.target
        return None

    def _configure(self, intake: Intake) -> list[Copy]:
        """Follow the configuration; returns the copies that are new."""
        fresh, gone = intake.configure()
        for copy in gone:
            self._drop(copy)
        for copy in fresh:
            self._link(copy, self._reach(copy))
        if fresh or gone:
            intake.touch()
        return fresh

    def _reach(self, copy: Copy) -> Reach:
        """Whose stream a copy reads."""
        if copy.source.external is None:
            return Reach(self)
        elsewhere = self._context.elsewhere
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
            origin.retention.consumers_changed()

    def attach(self, copy: Copy, origin: Stream) -> None:
        """A copy of ours has found its origin."""
        copy.attach(origin)
        if copy.is_behind:
            self._make_ready((copy,))

    def lose(self, copy: Copy) -> None:
        """A copy of ours has its origin no more."""
        copy.detach()
        self.ready.pop(copy, None)

    def _drop(self, copy: Copy) -> None:
        self._unlink(copy)
        self._failing.pop(copy, None)
        copy.target.crowd.pop(copy, None)

    # -- turns

    def ask_turn(self, copy: Copy) -> None:
        """A copy of ours has something to do in the next tick."""
        self._make_ready((copy,))

    def wake(self, readers: Iterable[Copy]) -> None:
        """Their origin has more messages on disk."""
        ours: list[Copy] = []
        for copy in readers:
            if copy.is_idle:
                continue
            if copy.context is self._context:
                ours.append(copy)
            else:
                copy.context.copies.wake((copy,))
        self._make_ready(ours)

    def resume(self, crowd: Iterable[Copy]) -> None:
        """Their target has room again."""
        for copy in crowd:
            self.go_on(copy)

    def go_on(self, copy: Copy) -> None:
        """What was in a copy's way may be gone."""
        copy.is_idle = False
        self._failing.pop(copy, None)
        if copy.is_behind:
            self._make_ready((copy,))

    def _make_ready(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            if not copy.is_held:
                self.ready[copy] = None
        if self.ready:
            # A tick is due in any case when input or the disk woke them, but not in all.
            self.want_tick()

    def want_tick(self) -> None:
        """Have another tick soon: something in this account is ready that was not when its turn came."""
        if self._turn is None:
            clock = self._context.clock
            self._turn = self._context.timers.call_at(clock.monotonic_ns(), self._turn_is_due)

    def _turn_is_due(self) -> None:
        """Nothing but a reason for a tick."""
        self._turn = None

    def run(self) -> None:
        """Copy as much as one tick may take."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        left = _TICK_MESSAGES
        storage = self._context.storage
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
        self._make_ready(())

    def try_later(self, copy: Copy) -> None:
        """A copy can not go on: let it try in a while."""
        self._failing[copy] = None
        if self._retry is None:
            deadline_ns = self._context.clock.monotonic_ns() + _RETRY_NS
            self._retry = self._context.timers.call_at(deadline_ns, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        failing, self._failing = self._failing, {}
        for copy in failing:
            self.go_on(copy)

    # -- commits

    def stage(self) -> None:
        """A flush starts: hand it the positions."""
        self._flying, self.dirty = self.dirty, {}
        for intake in self._flying:
            intake.stage()

    def completed(self, error: Exception | None) -> None:
        """The flush is over."""
        flying, self._flying = self._flying, {}
        if error is None:
            for intake in flying:
                self._make_ready([copy for copy in intake.committed() if copy.is_behind])
            return
        for intake in {**flying, **self.dirty}:
            intake.roll_back()
            for copy in intake.copies.values():
                self.ready.pop(copy, None)
                copy.is_held = False
                copy.is_idle = True
                self.try_later(copy)
