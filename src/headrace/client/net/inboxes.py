"""Inboxes for fetches, kept for the next one: subscribing for each would cost both ends as much as the pull.

Only an inbox the server will send nothing more to is kept: all that was asked for came, or its last word did.
Any other is unsubscribed, which cancels the pull.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...wire.frames import Frame
from .routes import Route

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Inboxes"]

IDLE_MAX: Final = 8  # more are unsubscribed when they are given back


class Inboxes:
    """Those of one connection."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._idle: list[Route] = []

    def __len__(self) -> int:
        """How many are idle."""
        return len(self._idle)

    def take(self, receive: Callable[[list[Frame]], None]) -> tuple[Route, bytes]:
        """An inbox for ``receive``, and what has to be sent to the server before it is used."""
        if self._idle:
            route = self._idle.pop()
            route.receive = receive
            return route, b""
        session = self._session
        route = session.routes.add(session.new_inbox().encode(), receive)
        return route, route.command()

    def give_back(self, route: Route) -> None:
        """Nothing more will come to this one."""
        if len(self._idle) < IDLE_MAX and self._session.link is not None:
            route.receive = self._refuse
            self._idle.append(route)
        else:
            self._session.close_route(route)

    def forget(self) -> None:
        """The link is lost, and with it the subscriptions."""
        for route in self._idle:
            self._session.routes.remove(route)
        self._idle.clear()

    def _refuse(self, frames: list[Frame]) -> None:
        """A server sent more than it was asked for: back with it, before its deadline."""
        replies = [frame[3] for frame in frames if frame[3]]
        if replies:
            self._session.send_back(replies)
