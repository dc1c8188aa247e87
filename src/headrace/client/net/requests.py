"""Requests and their answers: one wildcard subscription for all of a connection's requests."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, TypeAlias

from ...errors import (
    DisconnectedError,
    DisconnectedUnknownError,
    NoRespondersError,
    RequestTimeoutError,
    ServerError,
    TimeoutUnknownError,
)
from ...wire.encode import pub
from ...wire.frames import Frame
from ...wire.headers import says_nobody
from .outbox import WORDS_BYTES_MAX, check_line, check_loop, reply_bytes

if TYPE_CHECKING:
    from .outbox import Slip
    from .routes import Route
    from .session import Session


_Asked: TypeAlias = "tuple[asyncio.Future[Frame], str, Slip | None]"
"""A request that is waited for: its answer, its subject, and what withdraws it while that can be."""


class Requests:
    """The requests in flight of one connection, by the last token of their reply subject."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[bytes, _Asked] = {}
        self._route: Route | None = None
        self._prefix = b""
        self._last = 0
        self._reply_bytes = reply_bytes(session.options.inbox_prefix)
        self._subject_bytes_max = WORDS_BYTES_MAX - self._reply_bytes

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return self._last

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, subject: str, headers: bytes, payload: bytes, timeout: float) -> Frame:
        """Send a request and wait for one answer, a MSG frame.

        What times out or is cancelled before it was sent is withdrawn.

        Raises:
            LimitExceededError: the subject is too long for a line.
            NoRespondersError: nobody listens on the subject.
            TimeoutUnknownError: it was sent, and not answered within ``timeout`` seconds.
            RequestTimeoutError: it could not be sent within that time, and will not be.
            DisconnectedUnknownError: the connection was lost after the request was sent.
            DisconnectedError: … before, or there is none and the option ``fail_while_disconnected``.
            ServerError: we are not permitted to ask there, or to receive the answer.
            WrongLoopError: this is another event loop than that of the connection.
        """
        session = self._session
        check_loop(session.loop)
        outbox = session.outbox
        asks = subject.encode()
        if len(asks) > self._subject_bytes_max:
            check_line(asks, self._reply_bytes)
        if self._route is None:
            self._subscribe()
        self._last += 1
        token = b"%d" % self._last
        future: asyncio.Future[Frame] = session.loop.create_future()
        slip: Slip | None = None
        timer = session.loop.call_later(timeout, self._expire, token, timeout)
        self._waiting[token] = (future, subject, None)
        try:
            command = pub(asks, self._prefix + token, headers, payload)
            if not outbox.is_flowing:
                slip = session.send_once(command)
                self._waiting[token] = (future, subject, slip)
            elif len(self._waiting) == 1:
                outbox.put_now(command)  # alone it gains by that; many are better together
            else:
                outbox.put_once(command)
            frame = await future
        finally:
            timer.cancel()
            self._waiting.pop(token, None)
            if slip is not None:
                outbox.withdraw(slip)
        if frame[4] and says_nobody(frame[4], frame[5]):
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

    def _expire(self, token: bytes, timeout: float) -> None:
        """The time of a request is over."""
        future, subject, slip = self._waiting.get(token, (None, "", None))
        if future is None or future.done():
            return
        session = self._session
        error: RequestTimeoutError
        if session.outbox.withdraw(slip):
            error = RequestTimeoutError(
                f"no answer on {subject!r} within {timeout} s: it was not sent, and will not be; "
                f"{session.where}"
            )
        else:
            error = TimeoutUnknownError(
                f"no answer on {subject!r} within {timeout} s: it was sent, and may have been "
                "acted on or not"
            )
            session.doubt.begin()
        future.set_exception(error)

    def lost(self) -> None:
        """The link is lost, and with it the answers to all that were sent."""
        unsent = DisconnectedError("the connection was lost before this was sent; it will not be")
        sent = DisconnectedUnknownError(
            "the connection was lost before the answer came: it may have been acted on or not"
        )
        waiting, self._waiting = self._waiting, {}
        for future, _, slip in waiting.values():
            if not future.done():
                is_sent = slip is None or slip.is_written
                future.set_exception(sent if is_sent else unsent)

    def fail(self, reason: Exception) -> None:
        """No answer will come to any of them."""
        waiting, self._waiting = self._waiting, {}
        for future, _, _ in waiting.values():
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
            futures = [future for future, asked, _ in self._waiting.values() if asked == subject]
            for future in futures:
                if not future.done():
                    future.set_exception(ServerError(text))
            return bool(futures)
        if self._route is None or subject.encode() != self._route.subject:
            return False
        self._session.routes.remove(self._route)
        self._route = None  # the next request asks again
        self.fail(ServerError(explained(text, self._session.options.inbox_prefix)))
        return True


_NOT_PERMITTED: Final = re.compile(
    r'permissions violation for (Publish|Subscription) to "([^"]*)"', re.IGNORECASE
)


def explained(text: str, inbox_prefix: str) -> str:
    """The text of an ``-ERR``, and what to do about it where it keeps replies from coming."""
    found = _NOT_PERMITTED.match(text)
    if (
        found is None
        or found[1].lower() == "publish"
        or not found[2].startswith(f"{inbox_prefix}.")
    ):
        return text
    return f"{text}; replies need a permitted subject, see option inbox_prefix"
