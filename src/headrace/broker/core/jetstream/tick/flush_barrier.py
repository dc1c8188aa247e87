"""The flush barrier: the one place where acknowledgements wait for the disk.

Publish acknowledgements, API replies and answers to acks gather here and are released when the flush
that carries what they confirm has completed. One flush is in flight at a time; what comes meanwhile
gathers for the next one.

Several accounts stage into one storage, and a flush commits everything staged, by any of them. So
each engine that has staged something takes part in the next flush (``Commits``), and learns its outcome: an
acknowledgement that left with another account's flush would not know that the flush had failed.

``Turns`` are the turns of the loop that the engines of one storage share; ``PacedCalls`` makes calls one
in each of them. Removing a directory, or making one for a restore, takes the loop a fraction of a
millisecond to stage, and the disk two syncs to commit; making a stream takes the loop as long. Whoever sends
thousands of such calls would have a commit of seconds, or a loop that leaves the commit thread no time, and
everybody's acknowledgements wait for it. So the calls beyond a few wait for the next commit, in the order
they came, and their clients with them: what a client says behind such a call is handled behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from .....api.envelope import encode_error
from .....api.errors import Errors, ErrorSpec
from .....clock import Clock
from .....errors import StoreFullError, StoreReadError
from ...ports import Bus, Origin, Storage
from ...timers import Timer, TimerQueue

DIRECTORIES_PER_COMMIT: Final = 8
STREAMS_PER_COMMIT: Final = 32
"""Made, or deleted in memory: what touches no directory takes a fourth of the room."""
_SOON_NS: Final = 100_000_000  # a plain ack is on disk within this time without forcing a commit


class Taker(Protocol):
    """Somebody with long work."""

    def turn(self) -> None: ...


class Turns:
    """Calls those who have asked, one per turn of the loop, in the order they asked."""

    def __init__(self, clock: Clock, timers: TimerQueue) -> None:
        self._clock = clock
        self._timers = timers
        self._waiting: deque[Taker] = deque()

    def ask(self, taker: Taker) -> None:
        """Call ``taker`` in a turn of its own."""
        self._waiting.append(taker)
        if len(self._waiting) == 1:
            self._arm()

    def _arm(self) -> None:
        self._timers.call_at(self._clock.monotonic_ns(), self._next)

    def _next(self) -> None:
        taker = self._waiting.popleft()
        if self._waiting:
            self._arm()
        taker.turn()


class PacedCalls:
    """For all engines of one storage; one call in each turn of the loop."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: deque[tuple[Callable[[], None], Origin]] = deque()
        self._asked = False
        self._staged = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def carry_out(self, call: Callable[[], None], origin: Origin) -> None:
        """Make a call: now, if few before it have been staged, else later."""
        if self._has_room and not self._waiting:
            call()
            return
        origin.hold()
        self._waiting.append((call, origin))
        self._ask()

    def count(self, *, directory: bool) -> None:
        """A stream, and maybe its directory, is to be made or removed by the next commit."""
        self._staged += STREAMS_PER_COMMIT // DIRECTORIES_PER_COMMIT if directory else 1

    @property
    def _has_room(self) -> bool:
        return self._staged < STREAMS_PER_COMMIT

    def flush_begins(self) -> None:
        """What was staged is on its way: there is room for more."""
        self._staged = 0
        self._ask()

    def turn(self) -> None:
        """Make one of the calls that wait."""
        self._asked = False
        if not self._waiting or not self._has_room:
            return
        call, origin = self._waiting.popleft()
        try:
            call()
        finally:
            self._ask()
            origin.release()

    def _ask(self) -> None:
        if self._waiting and not self._asked and self._has_room:
            self._asked = True
            self._turns.ask(self)


def store_refusal(error: Exception) -> ErrorSpec:
    """What a client is told when the store did not keep something, or cannot read it now."""
    if isinstance(error, StoreFullError):
        return Errors.INSUFFICIENT_RESOURCES.because(error)
    if isinstance(error, StoreReadError):
        return Errors.STREAM_GENERAL.with_(err=str(error))
    return Errors.STREAM_STORE_FAILED.with_(err=str(error) or type(error).__name__)


Release = Callable[[Bus, Exception | None], "list[tuple[bytes, bytes]] | None"]
"""Called with a flush's outcome. Returns subjects and payloads that are to be published, all in one go."""


class Awaiting(Protocol):
    """What a flush releases; ``PubAcks`` are, and others may be."""

    def begin_flush(self) -> Release:
        """A flush begins that carries what was staged: returns what to call with its outcome."""


Done = Callable[[Exception | None], None]


class Commits:
    """Flushes one storage for its members, never twice at a time."""

    def __init__(self, storage: Storage, clock: Clock, timers: TimerQueue) -> None:
        self._storage = storage
        self._members: list[FlushBarrier] = []
        self.in_flight = False
        self._flushing = False
        self.turns = Turns(clock, timers)
        """For long work of any of them."""
        self.paced = PacedCalls(self.turns)

    @property
    def failed(self) -> bool:
        """Whether the storage takes nothing more: a flush is then nothing's."""
        return self._storage.failed is not None

    def join(self, member: FlushBarrier) -> None:
        """From here on, take part in every flush for which something was staged."""
        self._members.append(member)

    def flush(self) -> None:
        """Commit what was staged, unless nothing was or a flush is in flight.

        Storage in memory is done before it returns; what that has set off is committed in the next
        round, not deeper and deeper within this one.
        """
        if self._flushing:
            return
        self._flushing = True
        try:
            while not self.in_flight and any(m.wanted for m in self._members):
                taking_part = [member for member in self._members if member.has_staged]
                self.in_flight = True
                self.paced.flush_begins()
                self._storage.flush(partial(self._done, [m.begin() for m in taking_part]))
        finally:
            self._flushing = False

    def _done(self, told: list[Done], error: Exception | None) -> None:
        self.in_flight = False
        for done in told:
            done(error)
        self.flush()


class _Reply(NamedTuple):
    """An answer that waits: ``kind`` is the API response type, empty for the answer to an ack."""

    reply: bytes
    body: bytes
    kind: str
    headers: bytes


class FlushBarrier:
    """Collects what waits for the disk, and takes part in the flushes of the storage."""

    def __init__(
        self,
        bus: Bus,
        commits: Commits,
        clock: Clock,
        timers: TimerQueue,
        stage: Callable[[bool], None],
        completed: Callable[[Exception | None], None],
    ) -> None:
        """``stage`` is called before each flush to hand the last changes to the storage, with whether those
        belong to it that nobody waits for; and ``completed`` after each one, with its error, when its
        acknowledgements are out."""
        self._bus = bus
        self._commits = commits
        self._clock = clock
        self._timers = timers
        self._stage = stage
        self._completed = completed
        self._acks: dict[Awaiting, None] = {}
        self._replies: list[_Reply] = []
        self._soon: Timer | None = None
        self._is_whole = False  # the next flush carries what nobody waits for, too
        self.wanted = False
        """Whether something waits for a flush."""
        self.turns = commits.turns
        """Turns of the loop, shared with the other engines of the storage."""
        self.paced = commits.paced
        """Calls that make or remove directories, of all engines of the storage."""
        commits.join(self)

    @property
    def has_staged(self) -> bool:
        """Whether something was staged that no flush has carried yet, wanted or not."""
        return self.wanted or self._soon is not None

    def want(self, acks: Awaiting | None = None) -> None:
        """Something was staged: commit it at the end of this tick, then release ``acks``.

        Without any, all that has changed is committed.
        """
        self.wanted = True
        if acks is not None:
            self._acks[acks] = None
        else:
            self._is_whole = True

    def want_soon(self) -> None:
        """Something has changed that nobody waits for: commit it shortly, or with a flush before.

        Publishes alone do not take along what consumers have been given and have done: that is another file
        to sync, for which they would wait.
        """
        if self._soon is None:
            deadline_ns = self._clock.monotonic_ns() + _SOON_NS
            self._soon = self._timers.call_at(deadline_ns, self._soon_is_now)

    def reply(self, reply: bytes, body: bytes, kind: str = "", headers: bytes = b"") -> None:
        """Send ``body`` to ``reply``, if there is one, once everything that has changed so far is durable."""
        self.wanted = self._is_whole = True
        if reply:
            self._replies.append(_Reply(reply, body, kind, headers))

    def flush(self) -> None:
        """Commit what was staged, unless nothing was or a flush is already in flight."""
        self._commits.flush()

    def begin(self) -> Callable[[Exception | None], None]:
        """A flush starts: hand over the last changes; returns what its outcome releases."""
        is_whole = self._is_whole or self._soon is None
        self._stage(is_whole)
        self.wanted = self._is_whole = False
        if self._soon is not None and is_whole:
            self._soon.cancel()
            self._soon = None
        releases = [acks.begin_flush() for acks in self._acks]
        self._acks.clear()
        replies, self._replies = self._replies, []
        if self._commits.failed:  # what acks have changed is not kept: they get no answer
            replies = [reply for reply in replies if reply.kind]
        return partial(self._done, releases, replies)

    def _soon_is_now(self) -> None:
        self._soon = None
        self.wanted = self._is_whole = True
        self.flush()

    def _done(
        self,
        releases: list[Release],
        replies: list[_Reply],
        error: Exception | None,
    ) -> None:
        if error is not None:
            # Messages that came meanwhile are lost with it: no publish may be told it repeats one of them.
            releases += [acks.begin_flush() for acks in self._acks]
            self._acks.clear()
        answers: list[tuple[bytes, bytes]] = []
        for release in releases:
            answers += release(self._bus, error) or ()
        if answers:
            self._bus.publish_many(answers)
        for reply, body, kind, headers in replies:
            if error is None:
                self._bus.publish(reply, b"", headers, body)
            elif kind:
                # An ack that did not become durable gets no answer: the client will ask again.
                self._bus.publish(reply, b"", b"", encode_error(kind, store_refusal(error)))
        self._completed(error)
