"""What waits for one of several callbacks: by key, in the order it came. Used by the loop and by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Hashable, Iterable
from typing import TYPE_CHECKING

from ...handlers.key_order import Lanes

if TYPE_CHECKING:
    from ....wire.frames import Frame
    from ..message import JetStreamMessage


class WaitingByKey:
    """Messages that came and were not begun, and those that are being handled.

    What is decided (that a message may begin, that what waits goes back) is decided under one lock.

    Attributes:
        begun: those that were begun since somebody emptied it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: Lanes[JetStreamMessage] = Lanes()
        self._running: dict[JetStreamMessage, Hashable] = {}
        self.begun: list[JetStreamMessage] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._lanes)

    @property
    def has_free(self) -> bool:
        """Whether there is a message whose key is free."""
        return self._lanes.has_free

    @property
    def running(self) -> int:
        """How many are being handled."""
        return len(self._running)

    def add(self, keyed: Iterable[tuple[Hashable, JetStreamMessage]]) -> None:
        """These wait, each behind those of its key."""
        with self._lock:
            for key, message in keyed:
                self._lanes.add(key, message)

    def take(self) -> JetStreamMessage | None:
        """The next message whose key is free, which is busy until ``done``; None if there is none."""
        with self._lock:
            taken = self._lanes.take()
            if taken is None:
                return None
            key, message = taken
            self._running[message] = key
            self.begun.append(message)
            return message

    def done(self, message: JetStreamMessage) -> None:
        """It was handled."""
        with self._lock:
            self._lanes.done(self._running.pop(message))

    def waiting(self) -> list[JetStreamMessage]:
        """Those that wait, by key."""
        with self._lock:
            return list(self._lanes)

    def clear(self) -> list[JetStreamMessage]:
        """Let none of those that wait begin any more; returns them."""
        with self._lock:
            return self._lanes.clear()

    def remove(self, messages: Container[JetStreamMessage]) -> list[JetStreamMessage]:
        """Let none of these begin any more; returns those that had not begun."""
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

    def renew(self, find: Callable[[JetStreamMessage], Frame | None]) -> list[tuple[Frame, Frame]]:
        """Those that wait and for which ``find`` has a newer delivery are what that brought, in their places;
        returns the older and the newer frame of each."""
        renewed: list[tuple[Frame, Frame]] = []
        with self._lock:
            for message in self._lanes:
                if (frame := find(message)) is not None:
                    renewed.append((message._frame, frame))
                    message._frame, message._metadata = frame, None
        return renewed

    def take_begun(self) -> list[JetStreamMessage]:
        """``begun``, which is empty from here on."""
        with self._lock:
            begun, self.begun = self.begun, []
            return begun
