"""The console: an ASGI application of routes, guard and pages, and its HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..client.connection import Connection
from ..client.jetstream_context import JetStream
from ..errors import ConfigurationError
from ..host_names import LOOPBACK_NAMES, Names, is_loopback
from ..web.asgi import AsgiServer
from ..web.connections import ConnectionLimits
from . import answers
from .guard import Guard, Logins
from .routes import buckets, consumers, dead, jobs, live, messages, server, sessions, streams
from .servers import OtherServer, Servers, note, stop
from .settings import Settings
from .sources import Monitoring, Sources

AT: Final = "/api/at/{server}/"
"""Prefix of the paths of one of the other servers."""

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
    tables = (live, streams, messages, dead, consumers, buckets, jobs, server)
    routes = [
        answers.route(method, path, partial(handler, sources))
        for table in (sessions, *tables)
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
    """Have a handler answer of the server that the path names."""
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


BACKLOG: Final = 128
LIMITS: Final = ConnectionLimits(connections_max=500)


class ConsoleServer:
    """``async with ConsoleServer(settings, connection) as console``: serves until it is left.

    Args:
        settings: where it listens, and what it may do.
        connection: to the server it shows; the caller closes it.
        js: the connection's context; None for the usual one.
        monitoring: answers for the server's monitoring where it is in the same process.
        http: an ``httpx2.AsyncClient`` for job service and monitoring port, instead of one of its own.
        others: more servers to show, each connected to when a browser first asks for it.

    Raises:
        ConfigurationError: the port cannot be had, or the others are too many or have names twice.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        js: JetStream | None = None,
        monitoring: Monitoring | None = None,
        http: Any = None,
        others: Iterable[OtherServer] = (),
    ) -> None:
        self.settings = settings
        self.sources = Sources(settings, connection, js, monitoring, http)
        self.servers = Servers(self.sources, others, time.monotonic)
        self._connection = connection
        self._stack = contextlib.AsyncExitStack()
        self._port = 0

    def __repr__(self) -> str:
        return f"<ConsoleServer {self.url}>"

    @property
    def url(self) -> str:
        """Address at which a browser finds it."""
        host = self.settings.host
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            listener = stack.enter_context(self._listen())
            self._port = listener.getsockname()[1]
            await stack.enter_async_context(self.sources)
            noting = asyncio.create_task(note(self._connection.events()), name="console-errors")
            stack.push_async_callback(stop, noting)
            stack.push_async_callback(self.servers.close)
            app = create_app(self.settings, self.sources, time.monotonic, self.servers)
            server = AsgiServer(app, LIMITS)
            serving = asyncio.create_task(server.serve(sockets=[listener]), name="console-http")
            stack.push_async_callback(self._end, server, serving)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _end(self, server: AsgiServer, serving: asyncio.Task[None]) -> None:
        self.sources.ending.set()  # before: what still answers is cut off, with a traceback
        self.servers.end()
        server.should_exit = True
        await serving

    def _listen(self) -> socket.socket:
        host, port = self.settings.host, self.settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f"console: cannot listen on {host}:{port}: {error.strerror or error}; --port takes another"
            ) from error
