"""Serves the console: its own uvicorn, in the loop that calls it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Self

import uvicorn

from ..client.connection import Connection
from ..client.events import ErrorEvent, Event
from ..client.jetstream_context import JetStream
from ..errors import ConfigurationError, HeadraceError
from .app import create_app
from .settings import Settings
from .sources import Monitoring, Sources

_LOG: Final = logging.getLogger("headrace.console")
BACKLOG: Final = 128
CONNECTIONS_MAX: Final = 500  # one more is answered 503


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: whoever starts the console says when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConsoleServer:
    """``async with ConsoleServer(settings, connection) as console``: serves until it is left.

    Takes the arguments of ``Sources``. Raises ConfigurationError if the port cannot be had.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        js: JetStream | None = None,
        monitoring: Monitoring | None = None,
        http: Any = None,
    ) -> None:
        self.settings = settings
        self.sources = Sources(settings, connection, js, monitoring, http)
        self._connection = connection
        self._stack = contextlib.AsyncExitStack()
        self._port = 0

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
            noting = asyncio.create_task(_note(self._connection.events()), name="console-errors")
            stack.push_async_callback(_cancel, noting)
            app = create_app(self.settings, self.sources, time.monotonic)
            server = _Server(
                uvicorn.Config(
                    app,
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    limit_concurrency=CONNECTIONS_MAX,
                    timeout_graceful_shutdown=1,
                )
            )
            serving = asyncio.create_task(server.serve(sockets=[listener]), name="console-http")
            stack.push_async_callback(_end, server, serving, self.sources)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def _listen(self) -> socket.socket:
        host, port = self.settings.host, self.settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f"console: cannot listen on {host}:{port}: {error.strerror or error}; --port takes another"
            ) from error


async def _end(server: uvicorn.Server, serving: asyncio.Task[None], sources: Sources) -> None:
    sources.ending.set()  # before: what still answers is cut off, with a traceback
    server.should_exit = True
    await serving


async def _note(events: AsyncIterator[Event]) -> None:
    """Log what failed with nobody waiting: what a server says in a line, anything else with its traceback."""
    async for event in events:
        if isinstance(event, ErrorEvent):
            error = event.error
            about = f"{event.about}: " if event.about else ""
            _LOG.warning(
                "%s%s", about, error, exc_info=None if isinstance(error, HeadraceError) else error
            )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
