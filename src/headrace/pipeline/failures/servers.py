"""Whether the servers that a pipeline reads and writes are there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ...errors import AuthorizationError, ConnectionClosedError, HeadraceError, RequestTimeoutError
from ...spark.links.link import Link
from ...spark.options import Connection
from ..graph import quarantined, sources_of
from ..model import Declared, Sink
from ..options import JETSTREAM, sink_options, source_options

LOOK_S: Final = 1.0
_CONNECT_S: Final = 2.0


@dataclass
class _Server:
    """One server, or cluster, and the connection that shows whether it is there."""

    connection: Connection
    link: Link | None = None
    away_since: float | None = None


class Servers:
    """Keeps a connection to each server of a pipeline, and looks at it every second on a thread of its own.

    Args:
        by_query: which connections each query uses.
        clock: seconds since the epoch.
    """

    def __init__(
        self, by_query: Mapping[str, tuple[Connection, ...]], clock: Callable[[], float]
    ) -> None:
        known = {each for connections in by_query.values() for each in connections}
        self._servers = {each: _Server(each) for each in known}
        self._by_query = by_query
        self._clock = clock
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="headrace servers", daemon=True)

    def __enter__(self) -> Servers:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._end.set()
        self._thread.join()
        for each in self._servers.values():
            if each.link is not None:
                each.link.close()

    def away(self, query: str) -> tuple[str, float] | None:
        """A server of this query that is away, and since when (since the epoch); None: all are there."""
        with self._lock:
            for connection in self._by_query[query]:
                since = self._servers[connection].away_since
                if since is not None:
                    return ", ".join(_without_secrets(each) for each in connection.servers), since
        return None

    def is_away_now(self, query: str) -> bool:
        """Whether a server of this query takes no new connection; waits for two seconds at most for each.

        A server that hangs keeps the connections that it has, so a look at these would not tell.
        """
        is_away = False
        for connection in self._by_query[query]:
            link, is_there = _opened(connection)
            if link is not None:
                link.close()
            if not is_there:
                is_away = True
                with self._lock:
                    server = self._servers[connection]
                    if server.link is not None:
                        server.link.closed = True  # the thread lets go of it, and opens another
                    if server.away_since is None:
                        server.away_since = self._clock()
        return is_away

    def _watch(self) -> None:
        while not self._end.is_set():
            for server in self._servers.values():
                self._look_at(server)
            self._end.wait(LOOK_S)

    def _look_at(self, server: _Server) -> None:
        link = server.link
        if link is not None and _is_alive(link):
            return
        if link is not None:
            link.close()
        server.link, is_there = _opened(server.connection)
        with self._lock:
            if is_there:
                server.away_since = None
            elif server.away_since is None:
                server.away_since = self._clock()


def servers_of(declared: Declared, clock: Callable[[], float]) -> Servers:
    """The servers of a pipeline's own sources and sinks."""
    return Servers(
        {name: _connections(declared, each) for name, each in declared.sinks.items()}, clock
    )


def _connections(declared: Declared, sink: Sink) -> tuple[Connection, ...]:
    found = [
        source_options(each).connection
        for each in sources_of(declared, sink.of or quarantined(declared, sink)[0])
        if each.format == JETSTREAM
    ]
    if sink.format == JETSTREAM:
        found.append(sink_options(sink).connection)
    quick = (
        replace(each, connect_timeout_s=_CONNECT_S, request_timeout_s=_CONNECT_S) for each in found
    )
    return tuple(dict.fromkeys(quick))


def _is_alive(link: Link) -> bool:
    try:
        return link.is_alive()
    except HeadraceError:  # what came is no protocol
        return False


def _opened(connection: Connection) -> tuple[Link | None, bool]:
    """A connection if there is one, and whether a server is there.

    One that refuses a login is, and a file of credentials that cannot be read says nothing of it.
    """
    try:
        return Link.open(connection), True
    except AuthorizationError:
        return None, True
    except (ConnectionClosedError, RequestTimeoutError):
        return None, False
    except HeadraceError:
        return None, True


def _without_secrets(server: str) -> str:
    scheme, separator, rest = server.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
