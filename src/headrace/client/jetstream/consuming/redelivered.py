"""What a server that was restarted delivers again though it is still held here: each message is handled once.

A server that was killed may not know what it has delivered, and delivers it again as if it were the first
time. What it says of the delivery before is void: it may ignore an answer to it. So of a message that nobody
has begun with, the newer delivery counts, in the place of the older one. Who has begun with one goes on; the
newer delivery waits, and goes when the server has confirmed the acknowledgement of the older one. What is not
confirmed is handled again, so nothing is lost.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ....api.acks import parse_ack_subject
from ....wire.frames import Frame

if TYPE_CHECKING:
    from ....handling.waiting import Waiting
    from ..message import JetStreamMessage


class Name(NamedTuple):
    """Which message it is. A stream that is made again gives its numbers again, at other times."""

    domain: str
    stream: str
    consumer: str
    sequence: int
    timestamp_ns: int


def name_of(frame: Frame) -> Name | None:
    """Which message a frame brings; None if a consumer has not delivered it."""
    try:
        tokens = parse_ack_subject(frame[3].decode())
    except ValueError:
        return None
    return Name(
        tokens.domain, tokens.stream, tokens.consumer, tokens.stream_seq, tokens.timestamp_ns
    )


class Held:
    """What a feed holds and has not handed out, where it may have been delivered by several servers.

    Args:
        frames, with_thread: what is held. The former gets new frames at its end.
        forget: told which frames are no longer held.

    Attributes:
        by_key: what is held, too, where there are several callbacks.
        is_mixed: whether something may be held of a server that was restarted since, or left for another.
    """

    def __init__(
        self,
        frames: deque[Frame],
        with_thread: deque[Any],
        forget: Callable[[list[Frame]], None],
    ) -> None:
        self._frames = frames
        self._with_thread = with_thread
        self._forget = forget
        self.by_key: Waiting[JetStreamMessage] | None = None
        self.is_mixed = False
        self._first = 1  # what has a lower number on the wire came from a server before
        self._names: set[Name] = set()
        self._places: dict[Name, int] = {}  # of those in ``frames``: how many had come before
        self._came = self._removed = 0

    def linked(self, first: int) -> None:
        """There is a link again; what has a lower number than ``first`` came from a server before."""
        if first == self._first:
            return
        self._first = first
        names = list(map(name_of, self._frames))
        self._places = {name: place for place, name in enumerate(names) if name is not None}
        others = map(name_of, self._elsewhere())
        self._names = {*self._places, *(name for name in others if name is not None)}
        self._came, self._removed = len(names), 0
        self.is_mixed = bool(self._names)

    def renew(self, messages: list[Frame]) -> list[Frame]:
        """Of what came, put what is held in the place of its older delivery; returns the rest."""
        newer: dict[Name, Frame] = {}
        for frame in messages:
            if (name := name_of(frame)) is not None and name in self._names:
                newer[name] = frame
        used: set[int] = set()
        older: list[Frame] = []
        for name in [*newer]:
            if (place := self._place_of(name)) is not None:
                older.append(self._frames[place])
                self._frames[place] = frame = newer.pop(name)
                used.add(id(frame))
                self._names.discard(name)
        self._names -= newer.keys()
        for old, frame in self._renew_elsewhere(newer):
            older.append(old)
            used.add(id(frame))
        rest = [frame for frame in messages if id(frame) not in used]
        self._came += len(rest)
        self.is_mixed = bool(self._names) and self._holds_older()
        self._forget(older)
        return rest

    def remove(self, handled: Frame) -> None:
        """Drop what is held of a message, whose acknowledgement is confirmed."""
        if (name := name_of(handled)) is None:
            return
        token = b".%d." % name.sequence

        def is_it(frame: Frame) -> bool:
            return token in frame[3] and name_of(frame) == name

        gone = [frame for frame in self._frames if is_it(frame)]
        for frame in gone:
            self._frames.remove(frame)
        self._came -= len(gone)
        self._removed += len(gone)
        for message in self._with_thread.copy():
            if is_it(message._frame):
                with contextlib.suppress(ValueError):  # the thread was faster
                    self._with_thread.remove(message)
        if self.by_key is not None:
            waiting = {message for message in self.by_key.waiting() if is_it(message._frame)}
            gone += [message._frame for message in self.by_key.remove(waiting)]
        self._forget(gone)

    def take_back(self) -> list[Frame]:
        """What a thread was lent and has not handed out, and what waits by key: from here on it is not to
        be had there."""
        frames: list[Frame] = []
        if self.by_key is not None:
            frames += [message._frame for message in self.by_key.clear()]
        while self._with_thread:
            try:
                frames.append(self._with_thread.popleft()._frame)
            except IndexError:  # the thread was faster
                break
        return frames

    def _place_of(self, name: Name) -> int | None:
        """Where it is among the frames."""
        if (place := self._places.get(name)) is None:
            return None
        latest = place - (self._came - len(self._frames))
        earliest = max(latest - self._removed, 0)
        for index in range(min(latest, len(self._frames) - 1), earliest - 1, -1):
            if name_of(self._frames[index]) == name:
                return index
        return None

    def _elsewhere(self) -> list[Frame]:
        waiting = [] if self.by_key is None else self.by_key.waiting()
        return [message._frame for message in (*self._with_thread.copy(), *waiting)]

    def _renew_elsewhere(self, newer: dict[Name, Frame]) -> list[tuple[Frame, Frame]]:
        """Renew what waits for a callback, or was lent to a thread; older and newer frame of each."""
        renewed: list[tuple[Frame, Frame]] = []
        if not newer:
            return renewed

        def find(message: JetStreamMessage) -> Frame | None:
            name = name_of(message._frame)
            return None if name is None else newer.get(name)

        def renew(message: JetStreamMessage) -> tuple[Frame, Frame] | None:
            if (frame := find(message)) is None:
                return None
            old = message._frame
            message._frame, message._metadata = frame, None
            return old, frame

        if self.by_key is not None:
            renewed += self.by_key.visit(renew)
        for message in self._with_thread.copy():
            if (frame := find(message)) is not None:
                old = message._frame
                message._frame, message._metadata = frame, None
                if message in self._with_thread:  # else a thread has begun with it
                    renewed.append((old, frame))
        return renewed

    def _holds_older(self) -> bool:
        """Whether anything is still held of a server before."""
        first, frames = self._first, self._frames
        if any(int(frame[2]) < first for frame in frames):
            return True
        return any(int(frame[2]) < first for frame in self._elsewhere())
