"""The ASGI application, built from the table of endpoints."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ...visitors import Names
from ..errors import JobsError, not_found
from ..runtime.runtime import Runtime
from . import operations
from .asgi import (
    Front,
    Gateway,
    GatewayMiddleware,
    RequestId,
    VisitorGuard,
    problem_response,
    wants_text,
)
from .definitions import channels, consumers, forms, keys
from .jobs import finding, leased, pull
from .messages import feeds, publishing, reading, schedules
from .openapi import openapi_document, page_routes
from .request.access import authenticate, note_refusal, note_right
from .request.endpoint import Endpoint

__all__ = ["ENDPOINTS", "create_app"]

_LOG: Final = logging.getLogger("headrace.jobs.http")

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *forms.ENDPOINTS,
    *publishing.ENDPOINTS,
    *reading.ENDPOINTS,
    *pull.ENDPOINTS,
    *leased.ENDPOINTS,
    *finding.ENDPOINTS,
    *schedules.ENDPOINTS,
    *feeds.ENDPOINTS,
    *channels.ENDPOINTS,
    *consumers.ENDPOINTS,
    *keys.ENDPOINTS,
    *operations.ENDPOINTS,
)

_HTTP_CODES: Final = {404: "no_such_route", 405: "method_not_allowed"}


def create_app(
    runtime: Runtime,
    gateway: Gateway | None = None,
    names: Names | None = None,
    *,
    short: bool = True,
) -> ASGIApp:
    """The application on ``runtime``, which the caller starts and closes.

    ``names`` are those it is reached under; with them, pages of other sites are refused. Requests go the
    ``short`` way unless a test compares it with the other.
    """
    document = _description()

    async def openapi(request: Request) -> Response:
        del request
        return Response(document, media_type="application/json")

    bound = [(endpoint, _bound(endpoint, runtime)) for endpoint in ENDPOINTS]
    routes = [Route(endpoint.path, handle, methods=[endpoint.method]) for endpoint, handle in bound]
    routes += [Route("/openapi.json", openapi, methods=["GET"]), *page_routes()]
    answers: dict[Any, Any] = {JobsError: _refused, HTTPException: _no_route}
    app: ASGIApp = Starlette(routes=routes, exception_handlers={**answers, Exception: _unexpected})
    if short:
        app = Front(app, bound, answers, _unexpected)
    if gateway is not None:
        app = GatewayMiddleware(app, gateway, runtime)
    if names is not None:
        app = VisitorGuard(app, names)
    return RequestId(app)


@cache
def _description() -> bytes:
    """The OpenAPI document: the same for every application, and a tenth of a second's work."""
    return msgspec.json.encode(openapi_document(ENDPOINTS))


def _bound(endpoint: Endpoint, runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        for name, value in request.path_params.items():
            if not value.isascii() or not value.isprintable():
                # No id has such characters, and not every database accepts them.
                raise not_found(name.removesuffix("Id"), name)
        try:
            await authenticate(runtime, endpoint, request)
            response = await endpoint.handler(runtime, request)
        except JobsError as error:
            await note_refusal(runtime, endpoint, request, error)
            raise
        note_right(runtime, endpoint, request)
        return response

    return handle


def _answer(request: Request, error: JobsError) -> Response:
    body, headers = problem_response(error, as_text=wants_text(request.scope))
    response = Response(body, error.status)
    for name, value in headers:
        response.headers[name.decode()] = value.decode()
    return response


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, JobsError):
        raise AssertionError("registered for JobsError")
    return _answer(request, error)


async def _no_route(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise AssertionError("registered for HTTPException")
    code = _HTTP_CODES.get(error.status_code, "refused")
    response = _answer(request, JobsError(error.status_code, code, error.detail, "path"))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    # The details go to the log only; they could contain data of others.
    _LOG.error(
        "%s %s failed (request %s)",
        request.method,
        request.url.path,
        request.scope.get("headrace_request_id", "-"),
        exc_info=error,
    )
    return _answer(
        request,
        JobsError(
            500, "internal_error", "something went wrong here; the log of the service tells what"
        ),
    )
