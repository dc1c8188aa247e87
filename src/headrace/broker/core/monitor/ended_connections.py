"""Connections that have ended, remembered for monitoring: the newest ones, without their secrets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ..net.session import Session

__all__ = ["ENDED_MAX", "EndedConnection", "EndedConnections"]

ENDED_MAX: Final = 10_000  # of each broker, as nats-server; the oldest is forgotten for one more


class EndedConnection(NamedTuple):
    """What is left of a session. Named as there, where monitoring asks both the same."""

    client_id: int
    transport: str
    host: str
    port: int
    started_ns: int
    stopped_ns: int
    reason: str
    round_trip_ns: int
    in_messages: int
    out_messages: int
    in_bytes: int
    out_bytes: int
    name: str
    lang: str
    version: str
    account: str
    user: str
    tls_version: str


class EndedConnections:
    """The last connections that ended, oldest first."""

    def __init__(self) -> None:
        self._ended: deque[EndedConnection] = deque(maxlen=ENDED_MAX)

    def __iter__(self) -> Iterator[EndedConnection]:
        return iter(self._ended)

    def add(self, session: Session, now_ns: int) -> None:
        """Remember a session that has just ended."""
        peer, options = session.peer, session.options
        self._ended.append(
            EndedConnection(
                session.client_id,
                peer.transport,
                peer.host,
                peer.port,
                session.started_ns,
                now_ns,
                session.close_reason,
                session.round_trip_ns,
                session.in_messages,
                session.past_messages,
                session.in_bytes,
                session.output.written,
                options.name,
                options.lang,
                options.version,
                session.account.name,
                session.identity.name,
                peer.tls_version if peer.is_tls else "",
            )
        )
