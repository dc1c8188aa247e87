"""The guard against other sites' pages, in front of a service that asks for no admin token."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from ....visitors import Names, is_foreign
from ...errors import JobsError
from .middleware import send_problem

__all__ = ["VisitorGuard"]

_OPEN = "/health/"  # tells nothing, and is asked for by machines under any name
_TELLING = frozenset((b"host", b"origin", b"sec-fetch-site"))
_READING = ("GET", "HEAD", "OPTIONS")


class VisitorGuard:
    """Refuses a request under a name that is not ours (421), and a change that another site's page wants
    (403).

    A request without ``Host`` is no browser's.
    """

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is not None:
            await send_problem(refused, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> JobsError | None:
        if scope["path"].startswith(_OPEN):
            return None
        told: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in _TELLING:
                told.setdefault(name, value)
        host = _text(told, b"host")
        if host is not None and not self._names.accept(host):
            return JobsError(
                421,
                "wrong_host",
                "this service is not reached under that name; allowed_hosts (--allow-host) adds one",
                "Host",
            )
        if scope["method"] in _READING:
            return None
        if is_foreign(host or "", _text(told, b"origin"), _text(told, b"sec-fetch-site")):
            return JobsError(
                403, "foreign_request", "a page of another site may change nothing here", "Origin"
            )
        return None


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
