"""Requests and their answers: one wildcard subscription for all of a connection's requests."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

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
from .waiting import Outcome

if TYPE_CHECKING:
    from .outbox import Slip
    from .routes import Route
    from .session import Session


class Request(Outcome):
    """A request that was sent: ``await`` it for its answer, a MSG frame.

    What times out or is cancelled before it was sent is withdrawn.

    Attributes:
        token: what ends its reply subject.
        subject: what it asks.
        slip: what withdraws it, while that can be.
        answer: what came.
        until: where it is noted how long it is waited for.
    """

    slip: Slip | None = None
    answer: Frame | None = None
    until: dict[Outcome, float] | None = None

    def __init__(self, requests: Requests, at_once: bool, token: bytes, subject: str) -> None:
        self._loop = requests.loop
        self._at_once = at_once
        self._requests = requests
        self.token = token
        self.subject = subject

    def __await__(self) -> Generator[Any, None, Frame]:
        try:
            if not self.is_over:
                self._asyncio_future_blocking = True
                yield self
        finally:
            self.close()
        if self.error is not None:
            try:
                raise self.error
            finally:
                del self  # or the error would hold itself, by this frame
        frame = self.answer
        assert frame is not None
        if frame[4] and says_nobody(frame[4], frame[5]):
            raise NoRespondersError(f"nobody listens on {self.subject!r}")
        return frame

    def close(self) -> None:
        """Nobody waits for it any more."""
        if self.until is not None:
            self.until.pop(self, None)
        if self.answer is None:
            self._requests.forget(self)

    def late(self, seconds: float) -> None:
        """Its time is over."""
        self._requests.expire(self, seconds)


class Requests:
    """The requests in flight of one connection, by the last token of their reply subject."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.loop = session.loop
        self._waiting: dict[bytes, Request] = {}
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

    def ask(self, subject: str, headers: bytes, payload: bytes, timeout: float) -> Request:
        """Send a request; to be awaited at once.

        Raises, here or when it is awaited:
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
        check_loop(self.loop)
        asks = subject.encode()
        if len(asks) > self._subject_bytes_max:
            check_line(asks, self._reply_bytes)
        if self._route is None:
            self._subscribe()
        self._last = number = self._last + 1
        token = b"%d" % number
        request = self._waiting[token] = Request(self, session.may_run_readers, token, subject)
        command = pub(asks, self._prefix + token, headers, payload)
        outbox = session.outbox
        try:
            request.until = session.limits.begin(request, timeout)
            if not outbox.is_flowing:
                request.slip = session.send_once(command)
            elif len(self._waiting) == 1:
                outbox.put_now(command)  # alone it gains by that; many are better together
            else:
                outbox.put_once(command)
        except BaseException:
            request.close()
            raise
        return request

    def _subscribe(self) -> None:
        prefix = self._session.new_inbox().encode() + b"."
        self._prefix = prefix
        self._route = self._session.open_route(prefix + b"*", self._receive)

    def _receive(self, frames: list[Frame]) -> None:
        start, forget = len(self._prefix), self._waiting.pop
        answered: list[Request] = []
        for frame in frames:
            request = forget(frame[1][start:], None)
            if request is not None and not request.is_over:
                request.answer, request.is_over = frame, True
                answered.append(request)
        for (
            request
        ) in answered:  # last: whoever goes on may do anything, such as close the connection
            request.wake_now()

    def forget(self, request: Request) -> None:
        """Nobody waits for it."""
        self._waiting.pop(request.token, None)
        self._session.outbox.withdraw(request.slip)

    def expire(self, request: Request, seconds: float) -> None:
        """The time of a request is over."""
        session, subject = self._session, request.subject
        error: RequestTimeoutError
        if session.outbox.withdraw(request.slip):
            error = RequestTimeoutError(
                f"no answer on {subject!r} within {seconds} s: it was not sent, and will not be; "
                f"{session.where}"
            )
        else:
            error = TimeoutUnknownError(
                f"no answer on {subject!r} within {seconds} s: it was sent, and may have been "
                "acted on or not"
            )
            session.doubt.begin()
        request.end(error)

    def lost(self) -> None:
        """The link is lost, and with it the answers to all that were sent."""
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            if request.slip is None or request.slip.is_written:
                request.end(
                    DisconnectedUnknownError(
                        "the connection was lost before the answer came: it may have been acted on or not"
                    )
                )
            else:
                request.end(
                    DisconnectedError(
                        "the connection was lost before this was sent; it will not be"
                    )
                )

    def fail(self, reason: Exception) -> None:
        """No answer will come to any of them."""
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            request.end(reason)

    def refused(self, text: str) -> bool:
        """Handle an ``-ERR`` about permissions: fail the requests whose answer it prevents.

        False if it is about something else.
        """
        found = _NOT_PERMITTED.match(text)
        if found is None:
            return False
        what, subject = found.groups()
        if what == "Publish":
            asked = [each for each in self._waiting.values() if each.subject == subject]
            for request in asked:
                request.end(ServerError(text))
            return bool(asked)
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
