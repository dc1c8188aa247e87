"""Who gets the messages of which subscription number (sid), and the inboxes that fetches share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...wire.encode import sub, unsub
from ...wire.frames import Frame

IDLE_MAX: Final = 8  # more are unsubscribed when they are given back


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
        self.ending: set[Route] = set()
        """Those that are unsubscribed, and whose messages on their way are still to go back."""
        self.first = 1
        """What has a lower number came from a server that has been restarted since, or left for another."""
        self._last = 0

    def renew(self) -> None:
        """Give every route another number, as on the link to come another server answers."""
        routes = list(self.by_sid.values())
        self.by_sid.clear()
        self.first = self._last + 1
        for route in routes:
            self._last += 1
            route.sid = b"%d" % self._last
            self.by_sid[route.sid] = route

    def add(
        self, subject: bytes, receive: Callable[[list[Frame]], None], queue: bytes = b""
    ) -> Route:
        self._last += 1
        sid = b"%d" % self._last
        route = self.by_sid[sid] = Route(sid, subject, queue, receive)
        return route

    def remove(self, route: Route) -> bool:
        """Forget a route; False if it was forgotten already."""
        self.ending.discard(route)
        return self.by_sid.pop(route.sid, None) is not None

    def commands(self) -> bytes:
        """What restores every subscription on a new connection."""
        return b"".join([route.command() for route in self.by_sid.values()])


class Inboxes:
    """The inboxes of one connection, kept for the next fetch: subscribing for each would cost as much.

    An inbox is kept only when the server will send nothing more to it: everything that was asked for came, or
    the last word of the pull did. Any other is unsubscribed, which cancels the pull.

    Args:
        routes: all of the connection.
        new_inbox: makes a subject of replies.
        refuse: gets what comes to an inbox that is idle.
        close: unsubscribes a route.
        is_linked: whether there is a link, so that an inbox may be kept.
    """

    def __init__(
        self,
        routes: RouteTable,
        new_inbox: Callable[[], str],
        refuse: Callable[[list[Frame]], None],
        close: Callable[[Route], object],
        is_linked: Callable[[], bool],
    ) -> None:
        self._routes = routes
        self._new_inbox = new_inbox
        self._refuse = refuse
        self._close = close
        self._is_linked = is_linked
        self._idle: list[Route] = []

    def __len__(self) -> int:
        """How many are idle."""
        return len(self._idle)

    def borrow(self, receive: Callable[[list[Frame]], None]) -> tuple[Route, bytes]:
        """An inbox for ``receive``, and what has to be sent to the server before it is used."""
        if self._idle:
            route = self._idle.pop()
            route.receive = receive
            return route, b""
        route = self._routes.add(self._new_inbox().encode(), receive)
        return route, route.command()

    def give_back(self, route: Route) -> None:
        """Take it back: no more will come to this one."""
        if len(self._idle) < IDLE_MAX and self._is_linked():
            route.receive = self._refuse  # a server may send more than it was asked for
            self._idle.append(route)
        else:
            self._close(route)

    def forget(self) -> None:
        """The link is lost, and with it the subscriptions."""
        for route in self._idle:
            self._routes.remove(route)
        self._idle.clear()
