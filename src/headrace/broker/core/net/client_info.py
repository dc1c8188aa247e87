"""Who a connection is, as advisories show it: nats-server's client document, without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....api.times import format_time

if TYPE_CHECKING:
    from .session import Session

__all__ = ["client_info"]


def client_info(session: Session, server: str) -> dict[str, Any]:
    """``rtt`` is in nanoseconds; what the client did not say is left out."""
    options = session.options
    said = {
        "host": session.peer.host,
        "user": session.identity.name,
        "name": options.name,
        "lang": options.lang,
        "ver": options.version,
        "rtt": session.round_trip_ns,
    }
    return {
        "start": format_time(session.started_ns),
        "id": session.client_id,
        "acc": session.account.name,
        **{key: value for key, value in said.items() if value},
        "server": server,
        "kind": "Client",
        "client_type": session.peer.transport,
    }
