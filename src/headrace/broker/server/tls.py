"""TLS of one connection: the upgrade after INFO, handshakes that report failure, names in certificates.

When a handshake fails, asyncio and uvloop close without sending the alert OpenSSL has written. So a failure
is first reported as a need for more input: then the loop sends what there is. The handshake fails with the
next input, or when its time is over.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

logger = logging.getLogger("headrace.broker")


LINES_MAX: Final = 10  # of failed handshakes in the log …


LINES_WITHIN_S: Final = 10.0  # … in so many seconds: anybody can cause them


@dataclass
class Handshake:
    """Whose handshake it is, and what is to be done when it fails and the alert is on its way."""

    who: str
    failed: Callable[[], None]

    def is_over(self) -> None:
        """Let go of the connection: TLS keeps the context that knows us, and the connection keeps TLS."""
        self.failed = lambda: None


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
    _failure: tuple[type[ssl.SSLError], tuple[Any, ...]] | None = None  # the error would know us
    _tell: Callable[[ssl.SSLError], None]

    def do_handshake(self) -> None:
        if self._failure is not None:
            kind, arguments = self._failure
            raise kind(*arguments)
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            self._failure = type(error), error.args
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


_SHORT: Final = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU",
    "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST",
    "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
    "emailAddress": "emailAddress",
}  # fmt: skip


_ALTERNATIVES: Final = ("email", "DNS", "URI")


def certificate_names(transport: asyncio.BaseTransport) -> tuple[str, ...]:
    """The names to look for among users, in nats-server's order; none without a verified certificate.

    E-mail addresses, host names and URIs, then the whole subject: ``CN=ann,O=mill``, with its parts as
    RFC 4514 writes them (the last one first) and as they stand in the certificate.
    """
    tls = transport.get_extra_info("ssl_object")
    certificate: dict[str, Any] = (tls.getpeercert() if tls is not None else None) or {}
    names = [
        value
        for kind in _ALTERNATIVES
        for found, value in certificate.get("subjectAltName", ())
        if found == kind
    ]
    parts = [_part(rdn) for rdn in certificate.get("subject", ())]
    if parts:
        names += [",".join(reversed(parts)), ",".join(parts)]
    return tuple(dict.fromkeys(names))


def _part(rdn: Iterable[tuple[str, str]]) -> str:
    return "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in rdn)


def _escaped(value: str) -> str:
    """With what has a meaning between parts escaped (RFC 4514)."""
    return "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in value)
