"""uvicorn's connection, with a timeout for requests and a rule for too many connections.

A connection *waits* while it has no complete request: nothing yet, half a head, half a body, or nothing
since the last answer. Waiting costs its client nothing, so it is limited. It ends after a timeout, and when
the process has no connections left, the one that has waited longest is closed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any, Final

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ... import limits

__all__ = ["has_left", "make_protocol"]

_LOG: Final = logging.getLogger("headrace.jobs.http")
_SWEEP_S: Final = 1.0
_TRANSPORT: Final = "headrace_transport"


def has_left(scope: Scope) -> bool:
    """Whether the client of a request has gone, as far as its connection tells."""
    transport: asyncio.Transport | None = scope.get(_TRANSPORT)
    return transport is not None and transport.is_closing()


class _Waiting:
    """The waiting connections of one server, each with its start time; the oldest come first."""

    def __init__(self, connections_max: int, head_s: float, body_s: float) -> None:
        self.connections_max = connections_max
        self._head_s, self._body_s = head_s, body_s
        self._heads: dict[_Connection, float] = {}
        self._bodies: dict[_Connection, float] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def for_head(self, connection: _Connection) -> None:
        self.end(connection)
        self._heads[connection] = connection.loop.time()
        self._arm(connection.loop)

    def for_body(self, connection: _Connection) -> None:
        self.end(connection)
        self._bodies[connection] = connection.loop.time()
        self._arm(connection.loop)

    def end(self, connection: _Connection) -> None:
        self._heads.pop(connection, None)
        self._bodies.pop(connection, None)

    def make_room(self, newcomer: _Connection) -> None:
        """Close the connections that have waited longest, until one more is allowed or none waits."""
        while len(newcomer.connections) > self.connections_max:
            waiting = itertools.chain(self._heads, self._bodies)
            oldest = next((one for one in waiting if one is not newcomer), None)
            if oldest is None:
                return  # all have their requests: the new connection is answered 503
            self._drop(oldest)

    def _drop(self, connection: _Connection) -> None:
        self.end(connection)
        connection.connections.discard(connection)
        connection.transport.abort()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._sweep is None:
            self._sweep = loop.call_later(_SWEEP_S, self._swept, loop)

    def _swept(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        now, dropped = loop.time(), 0
        for waiting, patience_s in ((self._heads, self._head_s), (self._bodies, self._body_s)):
            while waiting:
                connection, since = next(iter(waiting.items()))
                if now - since < patience_s:
                    break
                self._drop(connection)
                dropped += 1
        if dropped:
            _LOG.info("%d connections closed: their requests did not arrive in time", dropped)
        if self._heads or self._bodies:
            self._arm(loop)


class _Connection(HttpToolsProtocol):
    """One connection; ``waiting`` is shared with the others of its server."""

    waiting: _Waiting

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting.make_room(self)
        self.waiting.for_head(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.end(self)
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.scope[_TRANSPORT] = self.transport  # type: ignore[typeddict-unknown-key]
        self.waiting.for_body(self)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete:  # rejected before all of it had arrived
            self.waiting.for_head(self)
        else:
            self.waiting.end(self)

    def on_response_complete(self) -> None:
        if not self.pipeline and self in self.connections:
            self.waiting.for_head(self)
        super().on_response_complete()


def make_protocol(
    connections_max: int = limits.CONNECTIONS_MAX,
    *,
    head_s: float = limits.REQUEST_HEAD_S,
    body_s: float = limits.REQUEST_BODY_S,
) -> type[asyncio.Protocol]:
    """The class of one server's connections, for uvicorn's ``http`` setting.

    A request's head has ``head_s`` seconds to arrive, its body ``body_s`` more.
    """
    values: dict[str, Any] = {"waiting": _Waiting(connections_max, head_s, body_s)}
    return type("Connection", (_Connection,), values)
