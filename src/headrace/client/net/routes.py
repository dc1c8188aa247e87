"""Who gets the messages of which subscription number (sid)."""

from __future__ import annotations

from collections.abc import Callable

from ...wire.encode import sub, unsub
from ...wire.frames import Frame

__all__ = ["Route", "RouteTable"]


class Route:
    """One number (sid) on the wire and who gets its messages, a batch at a time.

    ``receive(frames)`` is called with the consecutive MSG frames of one chunk.
    """

    __slots__ = ("max_messages", "queue", "receive", "received", "sid", "subject")

    def __init__(
        self, sid: bytes, subject: bytes, queue: bytes, receive: Callable[[list[Frame]], None]
    ) -> None:
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.receive = receive
        self.received = 0  # counted only while max_messages is set
        self.max_messages = 0

    def command(self) -> bytes:
        """What subscribes, on a first connection and on every later one."""
        line = sub(self.subject, self.queue, self.sid)
        if self.max_messages:
            line += unsub(self.sid, self.max_messages - self.received)
        return line


class RouteTable:
    """All routes of a connection, by sid. Numbers are not reused."""

    def __init__(self) -> None:
        self.by_sid: dict[bytes, Route] = {}
        self._last = 0

    def add(
        self, subject: bytes, receive: Callable[[list[Frame]], None], queue: bytes = b""
    ) -> Route:
        self._last += 1
        sid = b"%d" % self._last
        route = self.by_sid[sid] = Route(sid, subject, queue, receive)
        return route

    def remove(self, route: Route) -> bool:
        """Forget a route; False if it was forgotten already."""
        return self.by_sid.pop(route.sid, None) is not None

    def commands(self) -> bytes:
        """What restores every subscription on a new connection."""
        return b"".join([route.command() for route in self.by_sid.values()])
