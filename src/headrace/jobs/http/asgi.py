"""Checks between the listener and the endpoints, which every request passes, whatever it asks for.

An optional gateway signs requests with a shared secret (``X-Broker-Signature``), as the predecessor's
clients do: ``t=<unix seconds>,v1=<hex>``, HMAC-SHA256 over ``<t>.<body>``. With ``v2`` the method, the
path and the query are signed too, so that a signed request cannot be replayed as a different one; a
gateway can be configured to require it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import ConfigurationError
from ...host_names import Names, is_foreign
from ..errors import JobsError
from ..runtime.runtime import Runtime
from . import shapes
from .request.endpoint import is_legacy

__all__ = [
    "Gateway",
    "GatewayMiddleware",
    "RequestId",
    "VisitorGuard",
    "problem_response",
]


_FIELD: Final = "X-Broker-Signature"


class Gateway:
    """Decides whether a request is accepted. ``secrets`` are base64; any of them may have signed."""

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        tolerance_s: int = 300,
        exempt: Sequence[str] = ("/_status", "/metrics", "/health/"),
        v2_only: bool = False,
    ) -> None:
        try:
            self._keys = [base64.b64decode(secret, validate=True) for secret in secrets]
        except ValueError:
            raise ConfigurationError("gateway secret: base64 is accepted") from None
        if not self._keys or any(len(key) < 16 for key in self._keys):
            raise ConfigurationError("gateway secret: one or more of at least 16 bytes are needed")
        self._tolerance_s = tolerance_s
        self._exempt = tuple(exempt)
        self._v2_only = v2_only

    def is_exempt(self, path: str) -> bool:
        """Whether ``path`` is accepted unsigned. An entry ending in / covers all paths below it."""
        return any(
            path == entry or (entry.endswith("/") and path.startswith(entry))
            for entry in self._exempt
        )

    def check(
        self, signature: str | None, method: str, target: str, body: bytes, now_s: float
    ) -> None:
        """Return if the request is fresh and signed by one of the secrets.

        401 if the signature is missing or malformed, 403 if it is stale or does not match.
        """
        if not signature:
            raise JobsError(401, "signature_missing", "the request is not signed", _FIELD)
        parts = dict(part.strip().partition("=")[::2] for part in signature.split(","))
        timestamp = parts.get("t", "")
        version = "v2" if "v2" in parts else "v1"
        well_formed = (
            len(parts) == 2
            and timestamp.isascii()
            and timestamp.isdigit()
            and len(timestamp) <= 12
            and version in parts
        )
        if not well_formed or (self._v2_only and version == "v1"):
            wanted = "t=<unix seconds>,v2=<hex>" if self._v2_only else "t=<unix seconds>,v1=<hex>"
            raise JobsError(401, "signature_malformed", f"{wanted} is accepted", _FIELD)
        if abs(now_s - int(timestamp)) > self._tolerance_s:
            raise JobsError(403, "signature_stale", f"more than {self._tolerance_s} s off", _FIELD)
        signed = f"{timestamp}.".encode()
        if version == "v2":
            signed += f"{method}.{target}.".encode()
        signed += body
        given = parts[version].encode("utf-8", "replace")
        matched = False
        for key in self._keys:
            expected = hmac.new(key, signed, hashlib.sha256).hexdigest().encode()
            matched |= hmac.compare_digest(expected, given)
        if not matched:
            raise JobsError(403, "signature_wrong", "the signature does not match", _FIELD)


_LOG: Final = logging.getLogger("headrace.jobs.http")
_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}\Z")


class RequestId:
    """Takes a valid ``X-Request-ID`` or creates one, and returns it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # Not drawn for each request: that asks the system.
        self._begin = secrets.token_hex(6)
        self._count = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if _SANE_ID.match(given) else self._made()

        scope["headrace_request_id"] = request_id.decode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)

    def _made(self) -> bytes:
        return f"{self._begin}{next(self._count):08x}".encode()


class GatewayMiddleware:
    """Accepts only signed requests. Reads their bodies, up to the limit, and passes them on."""

    def __init__(self, app: ASGIApp, gateway: Gateway, runtime: Runtime) -> None:
        self._app = app
        self._gateway = gateway
        self._runtime = runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._gateway.is_exempt(scope["path"]):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        target = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("latin-1")
        try:
            body = await self._read(receive)
            self._gateway.check(
                headers.get(b"x-broker-signature", b"").decode("latin-1"),
                scope["method"],
                target,
                body,
                self._runtime.now_us() / 1e6,
            )
        except JobsError as error:
            await problem_response(error, scope)(scope, receive, send)
            return
        handed = False

        async def receive_again() -> Message:
            nonlocal handed
            if handed:
                return await receive()
            handed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive_again, send)

    async def _read(self, receive: Receive) -> bytes:
        body, more = b"", True
        bytes_max = self._runtime.options.payload_bytes_max
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > bytes_max:
                raise JobsError(
                    413, "payload_too_large", f"at most {bytes_max} bytes are accepted", "body"
                )
        return body


def problem_response(error: JobsError, scope: Scope) -> Response:
    """Describe ``error``: plain text on the specification's routes unless JSON is accepted."""
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    if _wants_text(scope):
        sentence = error.message if error.field is None else f"{error.message} ({error.field})"
        return Response(sentence, error.status, headers, media_type="text/plain")
    body = msgspec.json.encode(shapes.Problem(error.code, error.message, error.field))
    return Response(body, error.status, headers, media_type="application/json")


def _wants_text(scope: Scope) -> bool:
    """Whether errors of this request are plain text."""
    if not is_legacy(scope["path"]):
        return False
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return b"application/json" not in accepted.lower()


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
        refused = self._refusal(scope)
        if refused is not None:
            await problem_response(refused, scope)(scope, receive, send)
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
