"""Requests and their answers: one wildcard subscription for all of a connection's requests."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from ...errors import NoRespondersError, ServerError, TimeoutError_
from ...wire.encode import pub
from ...wire.frames import Frame
from ...wire.headers import status_of

if TYPE_CHECKING:
    from .routes import Route
    from .session import Session


class Requests:
    """The requests in flight of one connection, by the last token of their reply subject."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[bytes, tuple[asyncio.Future[Frame], str]] = {}  # and the subject
        self._route: Route | None = None
        self._prefix = b""
        self._last = 0

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return self._last

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, subject: str, headers: bytes, payload: bytes, timeout: float) -> Frame:
        """Send a request and wait for one answer, a MSG frame.

        Raises:
            NoRespondersError: nobody listens on the subject.
            TimeoutError: no answer within ``timeout`` seconds.
            DisconnectedError: the connection was lost after the request was sent.
            ServerError: we are not permitted to ask there, or to receive the answer.
        """
        session = self._session
        if self._route is None:
            self._subscribe()
        self._last += 1
        token = b"%d" % self._last
        future: asyncio.Future[Frame] = session.loop.create_future()
        timer = session.loop.call_later(timeout, _expire, future, subject, timeout)
        self._waiting[token] = (future, subject)
        try:
            command = pub(subject.encode(), self._prefix + token, headers, payload)
            if len(self._waiting) == 1 and session.link is not None:
                session.outbox.put_now(command)  # alone it gains by that; many are better together
            else:
                session.send_once(command)
            frame = await future
        finally:
            timer.cancel()
            self._waiting.pop(token, None)
        if frame[4] and status_of(frame[4]) == 503:
            raise NoRespondersError(f"nobody listens on {subject!r}")
        return frame

    def _subscribe(self) -> None:
        prefix = self._session.new_inbox().encode() + b"."
        self._prefix = prefix
        self._route = self._session.open_route(prefix + b"*", self._receive)

    def _receive(self, frames: list[Frame]) -> None:
        start = len(self._prefix)
        for frame in frames:
            waiting = self._waiting.pop(frame[1][start:], None)
            if waiting is not None and not waiting[0].done():
                waiting[0].set_result(frame)

    def fail(self, reason: Exception) -> None:
        """No answer will come to any of them."""
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(reason)

    def refused(self, text: str) -> bool:
        """Handle an ``-ERR`` about permissions: fail the requests whose answer it prevents.

        False if it is about something else.
        """
        found = _NOT_PERMITTED.match(text)
        if found is None:
            return False
        what, subject = found.groups()
        if what == "Publish":
            futures = [future for future, asked in self._waiting.values() if asked == subject]
            for future in futures:
                if not future.done():
                    future.set_exception(ServerError(text))
            return bool(futures)
        if self._route is None or subject.encode() != self._route.subject:
            return False
        self._session.routes.remove(self._route)
        self._route = None  # the next request asks again
        self.fail(ServerError(f"{text}; replies need a permitted subject, see option inbox_prefix"))
        return True


_NOT_PERMITTED: Final = re.compile(
    r'permissions violation for (Publish|Subscription) to "([^"]*)"', re.IGNORECASE
)


def _expire(future: asyncio.Future[Frame], subject: str, timeout: float) -> None:
    if not future.done():
        future.set_exception(TimeoutError_(f"no answer on {subject!r} within {timeout} s"))
