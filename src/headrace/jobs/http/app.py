"""The ASGI application, built from the table of endpoints."""

from __future__ import annotations

import logging
from functools import cache
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from ...host_names import Names
from ..errors import JobsError, not_found
from ..runtime.runtime import Runtime
from . import operations
from .asgi import (
    Gateway,
    GatewayMiddleware,
    RequestId,
    VisitorGuard,
    problem_response,
)
from .definitions import channels, consumers, forms, keys
from .jobs import finding, leased, pull
from .messages import feeds, publishing, reading, schedules
from .openapi import openapi_document, page_routes
from .request.access import authenticate, note_refusal, note_right
from .request.endpoint import Endpoint
from .router import Handle, Route, Router

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


def create_app(
    runtime: Runtime, gateway: Gateway | None = None, names: Names | None = None
) -> ASGIApp:
    """The application on ``runtime``, which the caller starts and closes.

    ``names`` are those it is reached under; with them, pages of other sites are refused.
    """
    routes = [
        *(Route(each.method, each.path, _bound(each, runtime)) for each in ENDPOINTS),
        Route("GET", "/openapi.json", _openapi),
        *page_routes(),
    ]
    app: ASGIApp = Router(routes, _unexpected)
    if gateway is not None:
        app = GatewayMiddleware(app, gateway, runtime)
    if names is not None:
        app = VisitorGuard(app, names)
    return RequestId(app)


async def _openapi(request: Request) -> Response:
    del request
    return Response(_description(), media_type="application/json")


@cache
def _description() -> bytes:
    """The OpenAPI document: the same for every application, and a tenth of a second's work."""
    return msgspec.json.encode(openapi_document(ENDPOINTS))


def _bound(endpoint: Endpoint, runtime: Runtime) -> Handle:
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


def _unexpected(request: Request, error: Exception) -> Response:
    # The details go to the log only; they could contain data of others.
    _LOG.error(
        "%s %s failed (request %s)",
        request.method,
        request.url.path,
        request.scope.get("headrace_request_id", "-"),
        exc_info=error,
    )
    sentence = "something went wrong here; the log of the service tells what"
    return problem_response(JobsError(500, "internal_error", sentence), request.scope)
