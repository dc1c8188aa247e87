"""What happens to a connection, as values: handed to ``on_event`` and to ``connection.events()``."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

__all__ = [
    "Closed",
    "Connected",
    "ConsumptionEnded",
    "Disconnected",
    "ErrorEvent",
    "Event",
    "EventHub",
    "LameDuck",
    "LeaderWaitOver",
    "Reconnected",
    "SettingsChanged",
    "WaitingForLeader",
]

EVENTS_KEPT_MAX: Final = 1024  # per iterator; the oldest are dropped beyond it

_log = logging.getLogger("headrace.client")


@dataclass(frozen=True, slots=True)
class Event:
    """The root of all connection events."""


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """The first connection stands. ``server`` is its address, without credentials."""

    server: str


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """The connection was lost; unless ``reconnect`` is off, it is being restored."""

    server: str
    reason: Exception


@dataclass(frozen=True, slots=True)
class Reconnected(Event):
    """The connection stands again and every subscription has been restored."""

    server: str
    attempts: int


@dataclass(frozen=True, slots=True)
class LameDuck(Event):
    """The server is about to shut down; it will close the connection in its own time."""

    server: str


@dataclass(frozen=True, slots=True)
class WaitingForLeader(Event):
    """In a cluster: something waits until a leader is elected, and is then sent again. ``of`` says whose,
    as ``stream 'ORDERS'`` or ``JetStream``. One event, however many wait for the same."""

    of: str


@dataclass(frozen=True, slots=True)
class LeaderWaitOver(Event):
    """Nobody waits for that leader any longer, after ``waited`` seconds: it was ``found``, or who waited last
    gave up."""

    of: str
    waited: float
    found: bool


@dataclass(frozen=True, slots=True)
class ConsumptionEnded(Event):
    """A running consume is over although nobody ended it: ``consumer`` was deleted, or is gone."""

    consumer: str
    error: Exception


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """A call that makes sure of a stream, consumer or bucket has changed one that was there. ``of`` says
    which, as ``stream 'ORDERS'``; ``changes`` has each setting with its values before and after."""

    of: str
    changes: Mapping[str, tuple[object, object]]


@dataclass(frozen=True, slots=True)
class ErrorEvent(Event):
    """Something failed that no caller is waiting for: a server's ``-ERR``, a dropped message, an
    exception out of a callback. ``about`` says what it was about, as far as ``error`` does not: the message
    that a callback was called for."""

    error: Exception
    about: str = ""


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """The connection is over. ``reason`` is None when it was closed by us."""

    reason: Exception | None


def _write(event: Event) -> None:
    """Into the log. A session writes its own lines: connected, lost, connected again, over."""
    match event:
        case LameDuck(server):
            _log.warning("server %s is about to shut down", server)
        case WaitingForLeader(of):
            _log.warning("waiting for a leader of %s", of)
        case LeaderWaitOver(of, waited, found):
            outcome = "found" if found else "given up"
            _log.info("waited %.1f s for a leader of %s: %s", waited, of, outcome)
        case SettingsChanged(of, changes):
            told = (f"{name} {before!r} → {after!r}" for name, (before, after) in changes.items())
            _log.warning("%s is changed: %s", of, ", ".join(told))


class EventHub:
    """Hands each event to the callback and to every iterator. Nobody listening loses nothing else.

    What a server has to do with is logged, too. Errors are logged where nobody listens, so that they cannot
    vanish.
    """

    def __init__(self, callback: Callable[[Event], object] | None) -> None:
        self._callback = callback
        self._queues: weakref.WeakSet[_EventQueue] = weakref.WeakSet()
        self._ended = False

    def emit(self, event: Event) -> None:
        """Tell the callback and every iterator; an error that nobody listens for is logged."""
        if not isinstance(event, ErrorEvent):
            _write(event)
        elif self._callback is None and not self._queues:
            about = f"{event.about}: " if event.about else ""
            _log.error("%s%s", about, event.error, exc_info=event.error)
        for queue in list(self._queues):
            queue.put(event)
        if self._callback is not None:
            try:
                self._callback(event)
            except Exception:
                # It is the program's own function, so it may raise anything; and what called here, the
                # reading of a link among others, must go on whatever the program makes of an event.
                _log.exception("on_event raised for %r", event)
        if isinstance(event, Closed):
            self._ended = True
            for queue in list(self._queues):
                queue.end()

    def events(self) -> AsyncIterator[Event]:
        """Events from now on, until the connection is closed. They end when the iterator is let go of."""
        queue = _EventQueue()
        if self._ended:
            queue.end()
        else:
            self._queues.add(queue)
        return queue


class _EventQueue:
    """One iterator. Several tasks may take from it."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT_MAX)
        self._arrived = asyncio.Event()
        self._over = False

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()

    def end(self) -> None:
        self._over = True
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._events.popleft()
