"""Large removals: one slice of one of them per turn of the loop, and each durable before the next.

Between two slices everybody else is served, and sees the stream as it is then: some of the messages are gone,
and every count is exact. Whoever asked is answered when the last slice is durable. A crash leaves a message
there or removed. A flush that fails ends what is under way: those who wait are told, and limits begin anew.
A slice that needs what the store cannot read now has removed nothing: it waits, and is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from .....errors import StoreError, StoreReadError
from ...ports import Bus, Removal, StreamStore
from .flush_barrier import FlushBarrier
from .retry import Unread

SLICE: Final = 100_000
"""Units of the store's work, of about 50 ns, in one turn."""
DISPOSALS: Final = 8
"""Of so many deleted streams at most in one turn: as many deletions of files go into a commit."""

Then = Callable[[Exception | None], None]


class Task(Protocol):
    """Something that removes."""

    def step(self) -> bool:
        """Do one slice; whether it was the last. Raises StoreError; if it is a StoreReadError,
        nothing was removed.
        """

    def stall(self, error: StoreReadError) -> Unread | None:
        """The store cannot read what this slice takes: what tries it again later; None to give it up."""

    def end(self, error: Exception | None) -> None:
        """All is removed, durable with the next flush; or it was given up."""


class Shrinking(Protocol):
    """A stream, as its removals know it; see ``stream.removing.Removing``."""

    store: StreamStore
    unread: Unread

    def purge_some(self, removal: Removal) -> bool: ...
    def catch_up(self) -> bool: ...
    def caught_up(self) -> None: ...


class _Context(Protocol):
    barrier: FlushBarrier


class Removals:
    """What is under way in one engine, in turns."""

    def __init__(self, context: _Context) -> None:
        self._context = context
        self._tasks: deque[Task] = deque()
        self._stalled: dict[Task, Unread] = {}  # and what they waited for, until a slice works
        self._parked: set[Task] = set()  # those that wait now
        self._asked = False

    def __len__(self) -> int:
        return len(self._tasks) + len(self._parked)

    def begin(self, task: Task) -> None:
        """Do the first slice now, and what is left in turns."""
        if not self._advance(task):
            self.add(task)

    def add(self, task: Task) -> None:
        """Do all of it in turns."""
        self._tasks.append(task)
        self._go_on()

    def turn(self) -> None:
        """One slice of the one that has waited longest."""
        self._asked = False
        if self._tasks:
            task = self._tasks.popleft()
            if not self._advance(task):
                self._tasks.append(task)
            if self._tasks:
                self._go_on()

    def begin_flush(self) -> Callable[[Bus, Exception | None], None]:
        """A flush takes along what was removed so far; see ``flush_barrier.Awaiting``."""
        return self._flushed

    def wake(self, unread: Unread) -> None:
        """Whoever waits here is not called any more: try at once what he was to be called for."""
        for task in [task for task in self._parked if self._stalled[task] is unread]:
            self._resume(task)

    def roll_back(self, unread: Unread, last_seq: int) -> None:
        """A flush failed: what a message asked for that is gone again is not done when it can be read."""
        for task in [task for task in self._parked if self._stalled[task] is unread]:
            if isinstance(task, Purge) and task.cause > last_seq:
                self._parked.remove(task)
                del self._stalled[task]

    def _advance(self, task: Task) -> bool:
        try:
            done = task.step()
        except StoreReadError as error:
            self._stall(task, error)
            return True
        except StoreError as error:
            self._stalled.pop(task, None)
            task.end(error)
            return True
        unread = self._stalled.pop(task, None)
        if unread is not None:
            unread.worked()
        if done:
            task.end(None)
        return done

    def _stall(self, task: Task, error: StoreReadError) -> None:
        """Do this slice when it can be read: none of it has happened."""
        unread = task.stall(error)
        if unread is None:
            task.end(error)
            return
        self._stalled[task] = unread
        self._parked.add(task)
        unread.failed(error, partial(self._resume, task))

    def _resume(self, task: Task) -> None:
        if task in self._parked:
            self._parked.remove(task)
            self.add(task)

    def _go_on(self) -> None:
        if not self._asked:
            self._asked = True
            self._context.barrier.want(self)

    def _flushed(self, bus: Bus, error: Exception | None) -> None:
        if error is None:
            self._context.barrier.turns.ask(self)
            return
        self._asked = False
        tasks, self._tasks = self._tasks, deque()
        for task in tasks:
            self._stalled.pop(task, None)
            task.end(error)


class Purge:
    """One purge of a stream; ``then`` is told of its end.

    If it cannot even begin, as the store cannot read what it takes, it is given up. Not so if it
    ``is_patient``, for a message that was just stored: then it waits, but nobody waits for it.
    """

    def __init__(
        self,
        stream: Shrinking,
        removal: Removal,
        then: Then | None = None,
        *,
        is_patient: bool = False,
    ) -> None:
        self._stream = stream
        self._removal = removal
        self._is_patient = is_patient
        self._waiting = [] if then is None else [then]
        self._has_begun = False
        self.cause = stream.store.last_seq if is_patient else 0
        """The message that asked for it, if it was one."""
        self.done = False
        """Whether nobody needs to wait for it any more."""

    @property
    def removed(self) -> int:
        """How many messages it has removed so far."""
        return self._removal.removed

    def step(self) -> bool:
        is_over = self._stream.purge_some(self._removal)
        self._has_begun = True
        return is_over

    def stall(self, error: StoreReadError) -> Unread | None:
        if self._is_patient:
            self.end(None)
        return self._stream.unread if self._is_patient or self._has_begun else None

    def end(self, error: Exception | None) -> None:
        self.done = True
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(error)

    def when_done(self, then: Then) -> None:
        """Tell one more of its end."""
        if self.done:
            then(None)
        else:
            self._waiting.append(then)


class Limits:
    """A stream on its way down to its limits, as after an update or when much expires at once."""

    def __init__(self, stream: Shrinking) -> None:
        self._stream = stream
        self.waiting: list[Then] = []
        self.waits = False
        """For what cannot be read now, so nobody else waits."""

    def step(self) -> bool:
        is_over = self._stream.catch_up()
        self.waits = False
        return is_over

    def stall(self, error: StoreReadError) -> Unread | None:
        self.waits = True
        self._release(None)
        return self._stream.unread

    def end(self, error: Exception | None) -> None:
        self._stream.caught_up()
        self._release(error)

    def _release(self, error: Exception | None) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then(error)


class Disposals:
    """Lets go of the memory of deleted streams, a little of some of them in each turn of the loop.

    None of it waits for the disk: streams that are made and deleted all the time are gone as soon.
    """

    def __init__(self, context: _Context) -> None:
        self._context = context
        self._waiting: deque[Disposal] = deque()

    def add(self, disposal: Disposal) -> None:
        """A deletion is durable."""
        self._waiting.append(disposal)
        if len(self._waiting) == 1:
            self._context.barrier.turns.ask(self)

    def turn(self) -> None:
        """One slice, divided among those that have waited longest."""
        some = min(DISPOSALS, len(self._waiting))
        for _ in range(some):
            disposal = self._waiting.popleft()
            if not disposal.step(SLICE // some):
                self._waiting.append(disposal)
        if self._waiting:
            self._context.barrier.turns.ask(self)


class Disposal:
    """A stream that is being deleted: its memory goes once that is durable; then ``disposed`` is called."""

    def __init__(
        self, disposals: Disposals, store: StreamStore, disposed: Callable[[], None]
    ) -> None:
        self._disposals = disposals
        self._store = store
        self._disposed = disposed

    def begin_flush(self) -> Callable[[Bus, Exception | None], None]:
        """See ``flush_barrier.Awaiting``."""
        return self._flushed

    def _flushed(self, bus: Bus, error: Exception | None) -> None:
        if error is None:  # or else the stream is there again
            self._disposals.add(self)

    def step(self, work: int) -> bool:
        """Let go of so much, in units of the store's work; whether that was all."""
        is_over = self._store.dispose(work)
        if is_over:
            self._disposed()
        return is_over
