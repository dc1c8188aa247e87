"""Checks that every request has to pass: its name for us, who sent it, what a page may do, the password.

A page on another site may send requests to this one. So the ``Host`` has to be one of ours (a name that
an attacker moves to 127.0.0.1 is not), whatever changes something needs a header that other sites cannot
set, nothing of the API is answered to another site's page, whatever the method, and the content-security
policy lets a page load and call nothing but this console. Who has given the password has a token, which lives
in memory: a restart asks again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..host_names import Names, is_foreign
from .answers import problem

COOKIE: Final = "headrace_console"
LOGIN_S: Final = 12 * 3600.0
LOGINS_MAX: Final = 1_000
FAILURES_MAX: Final = 10  # in FAILURES_S, from everybody together
FAILURES_S: Final = 60.0


class TooManyFailuresError(Exception):
    """The password was wrong too often; ``wait_s`` says how long nobody is listened to."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many wrong passwords; try again in {wait_s:.0f} s")
        self.wait_s = wait_s


class Logins:
    """Compares passwords, and remembers the tokens it gave.

    Args:
        password: the right one.
        clock: monotonic seconds.
    """

    def __init__(self, password: str, clock: Callable[[], float]) -> None:
        self._digest = _digest(password)
        self._clock = clock
        self._tokens: dict[str, float] = {}
        self._failures: list[float] = []

    def log_in(self, password: str) -> str | None:
        """A new token, or None for a wrong password. Raises TooManyFailuresError."""
        if not self.is_right(password):
            return None
        if len(self._tokens) >= LOGINS_MAX:
            del self._tokens[next(iter(self._tokens))]
        token = secrets.token_urlsafe(32)
        self._tokens[token] = self._clock() + LOGIN_S
        return token

    def is_right(self, password: str) -> bool:
        """Whether it is the password, without a token. Raises TooManyFailuresError."""
        now = self._clock()
        self._failures = [each for each in self._failures if now - each < FAILURES_S]
        if len(self._failures) >= FAILURES_MAX:
            raise TooManyFailuresError(FAILURES_S - (now - self._failures[0]))
        if hmac.compare_digest(_digest(password), self._digest):
            return True
        self._failures.append(now)
        return False

    def knows(self, token: str) -> bool:
        """Whether a token is one of ours, and still valid."""
        until = self._tokens.get(token)
        if until is None:
            return False
        if self._clock() >= until:
            del self._tokens[token]
            return False
        return True

    def log_out(self, token: str) -> None:
        """Forget a token."""
        self._tokens.pop(token, None)


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


MARK: Final = "x-headrace-console"
"""The header of our own pages' requests. Another site could not set it without being allowed to first."""

BODY_BYTES_MAX: Final = 1024 * 1024

UPLOAD_BYTES_MAX: Final = 1024**3
"""Limit of an object, which is passed on in pieces."""

HEADERS: Final = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
            b" connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none';"
            b" frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)

_OPEN: Final = ("/api/session",)
"""Paths that are answered without a password: whether one is needed, and giving it."""

_METRICS: Final = "/metrics"
_API: Final = "/api/"
_OBJECT: Final = re.compile("/api/(at/[^/]+/)?objects/")
_CLOSED: Final = (_API, _METRICS)
"""Paths that need the password; scrapers, who have no cookie, give it with each request (HTTP basic)."""


class Guard:
    """ASGI middleware in front of everything.

    Args:
        names: the names that ``Host`` may have; None: any.
        logins: who has given the password; None where none is needed.
        read_only: refuse whatever changes something.
    """

    def __init__(
        self, app: ASGIApp, *, names: Names | None, logins: Logins | None, read_only: bool
    ) -> None:
        self._app = app
        self._names = names
        self._logins = logins
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        refused = self._refusal(scope)
        if refused is not None:
            status, code, text = refused
            response = problem(status, code, text)
            if status == 401 and scope["path"] == _METRICS:
                response.headers["www-authenticate"] = 'Basic realm="headrace console"'
            await response(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._names is not None and not self._names.accept(host):
            return 421, "wrong_host", "this console is not reached under that name (--allow-host)"
        path: str = scope["path"]
        foreign = is_foreign(host, headers.get("origin"), headers.get("sec-fetch-site"))
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get(MARK) != "1" or foreign:
                return (
                    403,
                    "foreign_request",
                    f"requests that change something need the header {MARK}",
                )
            most = _most(scope["method"], path)
            if _length(headers, most) > most:
                return 413, "too_large", f"at most {most} bytes are accepted"
            if self._read_only and path not in _OPEN:
                return 403, "read_only", "this console was started with --read-only"
        # To look at something may cost the server, too, as a stream that is followed; and what another
        # site's page sends is no guess at the password, which would keep everybody out.
        if path.startswith(_CLOSED) and foreign:
            return 403, "foreign_request", "this is answered to the console's own pages"
        if self._logins is None or not path.startswith(_CLOSED) or path in _OPEN:
            return None
        if self._logins.knows(_cookie(headers)):
            return None
        told = _basic_password(headers) if path == _METRICS else ""
        try:
            if told and self._logins.is_right(told):  # nothing told is no wrong password
                return None
        except TooManyFailuresError as error:
            return 429, "too_many_failures", str(error)
        return 401, "password_needed", "give the password first"


def _most(method: str, path: str) -> int:
    """Limit of the bytes of a request's body."""
    return UPLOAD_BYTES_MAX if method == "PUT" and _OBJECT.match(path) else BODY_BYTES_MAX


def _length(headers: Headers, most: int) -> int:
    """Read what a body says of its length; one that comes in pieces without saying so counts as too long."""
    if "transfer-encoding" in headers:
        return most + 1
    text = headers.get("content-length", "0")
    return int(text) if text.isdigit() and len(text) < 12 else most + 1


def _basic_password(headers: Headers) -> str:
    """The password of ``Authorization: Basic``, whatever the user's name; "" without one."""
    kind, _, told = headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(told.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _cookie(headers: Headers) -> str:
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
