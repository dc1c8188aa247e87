"""The console as an ASGI application: routes, guard, pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..visitors import LOOPBACK_NAMES, Names, is_loopback
from . import answers
from .guard import Guard
from .logins import Logins
from .routes import (
    accounts,
    alerts,
    buckets,
    consumers,
    dead,
    groups,
    job_access,
    job_schedules,
    jobs,
    live,
    messages,
    metrics,
    objects,
    pipelines,
    search,
    server,
    sessions,
    spark,
    streams,
    writing,
)
from .servers import Servers
from .settings import Settings
from .sources import Sources

AT: Final = "/api/at/{server}/"
"""Before the paths of one of the other servers."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def create_app(
    settings: Settings,
    sources: Sources,
    clock: Callable[[], float],
    servers: Servers | None = None,
) -> ASGIApp:
    """The application. ``sources`` is opened and closed by the caller; ``clock`` is monotonic seconds.

    Of ``servers``, each has the same routes under ``/api/at/NAME``.
    """
    servers = servers or Servers(sources, (), clock)
    logins = Logins(settings.password, clock) if settings.password else None
    tables = (
        live,
        alerts,
        streams,
        messages,
        search,
        dead,
        writing,
        consumers,
        groups,
        buckets,
        objects,
        jobs,
        job_access,
        job_schedules,
        pipelines,
        spark,
        server,
        accounts,
    )
    routes = [
        answers.route(method, path, partial(handler, sources))
        for table in (sessions, metrics, *tables)
        for method, path, handler in table.ROUTES
    ]
    routes += [
        answers.route(method, path.replace("/api/", AT, 1), partial(_at, servers, handler))
        for table in tables
        for method, path, handler in table.ROUTES
    ]
    routes += _pages()
    app = Starlette(
        routes=routes,
        exception_handlers={404: _no_page, 405: _no_page, Exception: answers.unexpected},
    )
    app.state.settings, app.state.logins, app.state.servers = settings, logins, servers
    return Guard(app, names=_names(settings), logins=logins, read_only=settings.read_only)


async def _at(servers: Servers, handler: Callable[..., Any], request: Request) -> Any:
    """What a handler answers of the server that the path names."""
    return await handler(await servers.of(request.path_params["server"]), request)


def _names(settings: Settings) -> Names | None:
    """Names a browser may use. On all interfaces that is not known, and the password guards."""
    if settings.allowed_hosts:
        return Names((*settings.allowed_hosts, *LOOPBACK_NAMES, settings.host))
    return Names(LOOPBACK_NAMES) if is_loopback(settings.host) else None


def _pages() -> list[Route]:
    """The files under ``static``, read once; a path without a file gets the page, which finds its way."""
    root = Path(str(files(__package__) / "static"))
    found = {
        f"/{path.relative_to(root).as_posix()}": (path.read_bytes(), _TYPES[path.suffix])
        for path in sorted(root.rglob("*"))
        if path.suffix in _TYPES
    }
    page = found["/index.html"]

    def serve(content: bytes, kind: str) -> Callable[[Request], Response]:
        def respond(request: Request) -> Response:
            del request
            return Response(content, headers={"cache-control": "no-cache"}, media_type=kind)

        return respond

    routes = [Route(path, serve(*each)) for path, each in found.items()]
    return [*routes, Route("/", serve(*page))]


async def _no_page(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    text = f"no {request.method} {request.url.path[:200]}"
    return answers.problem(status, "no_such_page", text)
