"""Serves the console: its own uvicorn, in the loop that calls it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterable
from typing import Any, Final, Self

from ..client.connection import Connection
from ..client.jetstream_context import JetStream
from ..errors import ConfigurationError
from ..web.asgi import AsgiServer
from ..web.connections import ConnectionLimits
from .app import create_app
from .servers import OtherServer, Servers, note, stop
from .settings import Settings
from .sources import Monitoring, Sources

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
        """Where a browser finds it."""
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
