"""Middleware of every request: an id, the gateway, and answers to errors."""

from __future__ import annotations

import itertools
import logging
import re
import secrets
from typing import Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import JobsError
from ...runtime.runtime import Runtime
from .. import shapes
from .gateway import Gateway

__all__ = ["GatewayMiddleware", "RequestId", "problem_response", "send_problem"]

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
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
        if scope["type"] != "http" or self._gateway.is_exempt(scope["path"]):
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
            await send_problem(error, scope, receive, send)
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


def problem_response(error: JobsError, *, as_text: bool) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The body and the headers that describe ``error``."""
    headers = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
    if as_text:
        sentence = error.message if error.field is None else f"{error.message} ({error.field})"
        headers.append((b"content-type", b"text/plain; charset=utf-8"))
        return sentence.encode(), headers
    headers.append((b"content-type", b"application/json"))
    return msgspec.json.encode(shapes.Problem(error.code, error.message, error.field)), headers


async def send_problem(error: JobsError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with ``error``; plain text on the specification's routes unless JSON is accepted."""
    del receive
    body, headers = problem_response(error, as_text=wants_text(scope))
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def wants_text(scope: Scope) -> bool:
    """Whether errors of this request are plain text."""
    if scope["path"].startswith(("/v2/", "/health/")):
        return False
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return b"application/json" not in accepted.lower()
