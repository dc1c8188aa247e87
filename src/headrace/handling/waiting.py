"""Messages that wait for a handler, in the order of each key, and those that are handled: from any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Generator, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from .key_order import Lanes, Line

M = TypeVar("M", bound=Hashable)
R = TypeVar("R")


class Time(Protocol):
    """How long messages may be begun, by a clock."""

    @property
    def until(self) -> float: ...


class Waiting(Generic[M]):
    """Messages that came and were not begun, and those that are being handled.

    What is decided (that a message may begin, that none does any more) is decided under one lock.

    Args:
        in_turn: whether all have one key: they are handled one at a time.

    Attributes:
        begun: those that were begun since somebody emptied it, if that is asked for.
        late: those whose handlers ended when their time was over, if that is asked for.
        last: the one whose handler ended last.
        running: those that are being handled, with their keys.
        is_over: whether none may begin any more.
    """

    __slots__ = ("_lanes", "_lock", "begun", "is_over", "last", "late", "running")

    def __init__(
        self, *, in_turn: bool = False, notes_begun: bool = False, notes_late: bool = False
    ) -> None:
        self._lock = threading.Lock()
        self._lanes: Lanes[M] | Line[M] = Line() if in_turn else Lanes()
        self.running: dict[M, Hashable] = {}
        self.begun: list[M] | None = [] if notes_begun else None
        self.late: deque[M] | None = deque() if notes_late else None
        self.last: M | None = None
        self.is_over = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._lanes)

    @property
    def has_free(self) -> bool:
        """Whether there is a message whose key is free."""
        return self._lanes.has_free

    def add(self, keyed: Iterable[tuple[Hashable, M]]) -> None:
        """These wait, each behind those of its key."""
        with self._lock:
            add = self._lanes.add
            for key, message in keyed:
                add(key, message)

    def next(
        self,
        handled: M | None = None,
        clock: Callable[[], float] | None = None,
        time: Time | None = None,
    ) -> M | None:
        """The next message whose key is free, which is busy until it was ``handled``; None if there is none,
        none may begin any more, or ``time`` is over by the ``clock``."""
        lanes, running = self._lanes, self.running
        with self._lock:
            is_late = time is not None and clock is not None and clock() >= time.until
            if handled is not None:
                self.last = handled
                if is_late and self.late is not None:
                    self.late.append(handled)
                lanes.done(running.pop(handled))
            if is_late or self.is_over or (taken := lanes.take()) is None:
                return None
            key, message = taken
            running[message] = key
            if self.begun is not None:
                self.begun.append(message)
            return message

    def done(self, message: M, *, is_late: bool = False) -> None:
        """It was handled."""
        with self._lock:
            self.last = message
            if is_late and self.late is not None:
                self.late.append(message)
            self._lanes.done(self.running.pop(message))

    def turn(
        self,
        clock: Callable[[], float],
        time: Time,
        most: int,
        *,
        skips: Callable[[M], bool] | None = None,
    ) -> Generator[M, None, None]:
        """Up to ``most`` messages, and none that would begin after ``time.until``. Each is being handled
        until the next one is asked for, or the turn is closed.

        Args:
            skips: whether a message is not to be handled after all.
        """
        message: M | None = None
        try:
            for _ in range(most):
                message = self.next(message, clock, time)
                if message is None:
                    return
                if skips is None or not skips(message):
                    yield message
        finally:
            if message is not None:
                self.done(message, is_late=clock() >= time.until)

    def stop(self) -> None:
        """Let none begin any more; those that wait stay."""
        with self._lock:
            self.is_over = True

    def waiting(self) -> list[M]:
        """Those that wait, by key."""
        with self._lock:
            return list(self._lanes)

    def handled(self) -> list[M]:
        """Those that are being handled."""
        with self._lock:
            return list(self.running)

    def clear(self) -> list[M]:
        """Drop those that wait; returns them."""
        with self._lock:
            return self._lanes.clear()

    def remove(self, messages: Container[M]) -> list[M]:
        """Drop these; returns those that had not begun."""
        with self._lock:
            kept, removed = [], []
            for key, message in self._lanes.items():
                if message in messages:
                    removed.append(message)
                else:
                    kept.append((key, message))
            self._lanes.clear()
            for key, message in kept:
                self._lanes.add(key, message)
            return removed

    def visit(self, change: Callable[[M], R | None]) -> list[R]:
        """Call ``change`` with those that wait, none of which begins meanwhile; what it returned but None."""
        with self._lock:
            found = [change(message) for message in self._lanes]
        return [each for each in found if each is not None]

    def take_begun(self) -> list[M]:
        """``begun``, which is empty from here on."""
        with self._lock:
            begun, self.begun = self.begun or [], []
            return begun
