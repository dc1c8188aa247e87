"""TLS contexts that tell: a client whose handshake fails hears why (an alert), and so does the log.

When a handshake fails, asyncio and uvloop close without sending the alert OpenSSL has written. So a failure
first looks as if more input were wanted: then the loop sends what there is. With whatever comes next, or
when the time for a handshake is over, it fails.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

__all__ = ["Handshake", "TellingContext", "current_handshake"]

logger = logging.getLogger("headrace.broker")

LINES_MAX: Final = 10  # of failed handshakes in the log …
LINES_WITHIN_S: Final = 10.0  # … in so many seconds: anybody can cause them


class Handshake(NamedTuple):
    """Whose handshake it is, and what is to be done when it fails and the alert is on its way."""

    who: str
    failed: Callable[[], None]


current_handshake: ContextVar[Handshake | None] = ContextVar("current_handshake", default=None)
"""Set where a handshake is begun, if that is known."""


class _Complaints:
    """Log lines, and how many were left out."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since = 0.0
        self._said = 0
        self._left_out = 0

    def say(self, text: str) -> None:
        now = self._now()
        if self._said and now - self._since < LINES_WITHIN_S:
            if self._said >= LINES_MAX:
                self._left_out += 1
                return
        else:
            self._since, self._said = now, 0
        more = f" (and {self._left_out} more before)" if self._left_out else ""
        self._said, self._left_out = self._said + 1, 0
        logger.error("%s%s", text, more)


class _TellingObject(ssl.SSLObject):
    _failure: ssl.SSLError | None = None
    _tell: Callable[[ssl.SSLError], None]

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            self._failure = error
            self._tell(error)
            raise ssl.SSLWantReadError("the alert is to be sent") from error


class TellingContext(ssl.SSLContext):
    """A context for servers; see the module."""

    sslobject_class = _TellingObject
    _complaints: _Complaints

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        wrapped = super().wrap_bio(*arguments, **options)
        handshake = current_handshake.get()

        def tell(error: ssl.SSLError) -> None:
            who = "" if handshake is None else f"{handshake.who} - "
            self.complaints.say(f"{who}TLS handshake error: {error.reason or error}")
            if handshake is not None:
                handshake.failed()

        assert isinstance(wrapped, _TellingObject), "it is the class to be made"
        wrapped._tell = tell
        return wrapped

    @property
    def complaints(self) -> _Complaints:
        """What the log hears of failures."""
        try:
            return self._complaints
        except AttributeError:  # SSLContext is made by __new__ alone
            self._complaints = _Complaints()
            return self._complaints
