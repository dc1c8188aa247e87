"""The servers of a console: the one it was started with, and others, connected to when somebody asks.

Each has its own sources and its own looks; nothing of one is ever shown for another. A server that cannot be
reached is said to whoever asks for it, and tried again for the next who asks, after ``PATIENCE_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from ..client.events import ErrorEvent, Event
from ..client.jetstream_context import JetStream
from ..errors import ConfigurationError, HeadraceError
from .answers import RefusedError
from .sources import Sources

_LOG: Final = logging.getLogger("headrace.console")

OTHERS_MAX: Final = 50
PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherServer:
    """A server that a console shows beside the one it is connected to.

    Attributes:
        name: what the pages and their addresses call it.
        connect: connects when it is entered, gives a JetStream context, and disconnects when it is left.
        monitoring: the URL of its monitoring port; without it the system account is asked.
    """

    name: str
    connect: Callable[[], AbstractAsyncContextManager[JetStream]]
    monitoring: str = ""


class Servers:
    """Finds the sources of the server that a request names.

    Args:
        first: of the server the console was started with; opened and closed by the caller.
        others: what else is shown.
        clock: monotonic seconds.

    Raises:
        ConfigurationError: there are too many, or two of one name.
    """

    def __init__(
        self, first: Sources, others: Iterable[OtherServer], clock: Callable[[], float]
    ) -> None:
        self._first = first
        self._clock = clock
        self._others: dict[str, _Other] = {}
        for other in others:
            if not other.name or "/" in other.name or other.name in self._others:
                raise ConfigurationError(
                    f"console: the name of another server is {other.name!r}; accepted: a name of its own,"
                    " without a slash"
                )
            self._others[other.name] = _Other(other, first)
        if len(self._others) > OTHERS_MAX:
            raise ConfigurationError(
                f"console: {len(self._others)} other servers; accepted: {OTHERS_MAX} at most"
            )

    def names(self) -> list[str]:
        """Names of the others, in their order."""
        return list(self._others)

    async def of(self, name: str) -> Sources:
        """The sources of this server; "" is the first. Raises RefusedError."""
        if not name:
            return self._first
        other = self._others.get(name)
        if other is None:
            raise RefusedError(
                404, "no_such_server", f"this console shows no server {name[:100]!r}"
            )
        return await other.sources(self._clock)

    def end(self) -> None:
        """Let go of the pages that are kept up to date."""
        for other in self._others.values():
            other.end()

    async def close(self) -> None:
        """Disconnect from the others."""
        for other in self._others.values():
            await other.close()


class _Other:
    """One of the others: not asked for yet, being connected to, connected, or away."""

    def __init__(self, server: OtherServer, first: Sources) -> None:
        self._server = server
        self._first = first
        self._stack = contextlib.AsyncExitStack()
        self._opening: asyncio.Task[Sources] | None = None
        self._failed_at: float | None = None

    async def sources(self, clock: Callable[[], float]) -> Sources:
        """Connected to it, once for all who ask at a time. Raises RefusedError (503)."""
        opening = self._opening
        if opening is not None and opening.done():
            waited = self._failed_at is not None and clock() - self._failed_at >= PATIENCE_S
            if waited or _is_lost(opening):
                opening = None
        if opening is None:
            self._failed_at = None
            opening = self._opening = asyncio.create_task(
                self._open(clock), name=f"console-server-{self._server.name}"
            )
        # Whoever asked may go away; the others who wait are served all the same.
        return await asyncio.shield(opening)

    def end(self) -> None:
        opening = self._opening
        if opening is not None and opening.done() and not _failed(opening):
            opening.result().ending.set()

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._stack.aclose()

    async def _open(self, clock: Callable[[], float]) -> Sources:
        await self._stack.aclose()  # of a connection that was lost
        try:
            async with contextlib.AsyncExitStack() as stack:
                js = await stack.enter_async_context(self._server.connect())
                sources = self._sources_of(js)
                await stack.enter_async_context(sources)
                noting = asyncio.create_task(
                    note(js.connection.events(), f"{self._server.name}: "), name="console-errors"
                )
                stack.push_async_callback(stop, noting)
                await sources.watcher.first_look()
                self._stack = stack.pop_all()
        except (HeadraceError, OSError) as error:
            self._failed_at = clock()
            # Addresses and files of credentials are for the log: browsers are not told.
            text = f"{self._server.name} cannot be reached"
            _LOG.warning("%s: %s", text, str(error) or type(error).__name__)
            raise RefusedError(503, "server_away", f"{text}; the console's log says why") from error
        except BaseException:
            self._failed_at = clock()
            raise
        return sources

    def _sources_of(self, js: JetStream) -> Sources:
        settings = replace(self._first.settings, monitoring=self._server.monitoring)
        return Sources(settings, js.connection, js, http=self._first.http)


def _is_lost(opening: asyncio.Task[Sources]) -> bool:
    """Whether the connection was given up, as when the server no longer accepts the user."""
    return not _failed(opening) and opening.result().connection.is_closed


def _failed(opening: asyncio.Task[Any]) -> bool:
    return opening.cancelled() or opening.exception() is not None


async def note(events: AsyncIterator[Event], where: str = "") -> None:
    """Log what failed with nobody waiting: what a server says in a line, anything else with its traceback."""
    async for event in events:
        if isinstance(event, ErrorEvent):
            error = event.error
            about = f"{event.about}: " if event.about else ""
            known = isinstance(error, HeadraceError)
            _LOG.warning("%s%s%s", where, about, error, exc_info=None if known else error)


async def stop(task: asyncio.Task[None]) -> None:
    """Cancel it, and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
