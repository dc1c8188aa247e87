"""What monitoring shows of connections, in the shape and by the options of nats-server's ``/connz``.

As in ``hub_monitor``: JSON-ready, without secrets, and of no cost while nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from ...api.times import format_time
from ...errors import ConfigurationError

if TYPE_CHECKING:
    from .hub import Hub
    from .session import Session

__all__ = ["CONNECTIONS_PER_PAGE", "connz", "format_uptime", "subscription_detail"]

CONNECTIONS_PER_PAGE: Final = 1024

Subscriptions = Literal["", "list", "detail"]

_STATES: Final = ("", "open", "0", "closed", "1", "any", "all", "2")
"""Which connections are asked for; closed ones are not remembered, so there are none."""


def connz(
    hub: Hub,
    *,
    offset: int = 0,
    limit: int = CONNECTIONS_PER_PAGE,
    cid: int = 0,
    account: str = "",
    user: str = "",
    sort: str = "",
    state: str = "",
    subscriptions: Subscriptions = "",
) -> dict[str, Any]:
    """A page of the connections, sorted; only those of an account or a user, or with id ``cid``.

    Raises ConfigurationError for a sort or a state there is not.
    """
    sorts = _sorts()
    by = sorts.get(sort.lower() or "cid")
    if by is None:
        accepted = ", ".join(sorts)
        raise ConfigurationError(f"sort: {sort!r}; accepted are {accepted}")
    if state.lower() not in _STATES:
        raise ConfigurationError(f"state: {state!r}; accepted are open, closed and any")
    closed = state.lower() in ("closed", "1")
    sessions = [] if closed else sorted(hub.sessions.values(), key=by)
    if account:
        sessions = [session for session in sessions if session.account.name == account]
    if user:
        sessions = [session for session in sessions if session.identity.name == user]
    if cid:
        sessions = [session for session in sessions if session.client_id == cid]
    limit = max(1, min(limit, CONNECTIONS_PER_PAGE))
    page = sessions[max(0, offset) : max(0, offset) + limit]
    now_ns = hub.clock.now_ns()
    return {
        "server_id": hub.server_id,
        "now": format_time(now_ns),
        "num_connections": len(page),
        "total": len(sessions),
        "offset": max(0, offset),
        "limit": limit,
        "connections": [_connection(session, now_ns, subscriptions) for session in page],
    }


def _sorts() -> dict[str, Callable[[Session], Any]]:
    """By which number connections are sorted: the largest first, but for ids and times."""
    return {
        "cid": lambda session: session.client_id,
        "start": lambda session: session.started_ns,
        "subs": lambda session: -len(session.subscriptions),
        "pending": lambda session: -_pending(session),
        "msgs_to": lambda session: -session.out_messages,
        "msgs_from": lambda session: -session.in_messages,
        "bytes_to": lambda session: -session.output.written,
        "bytes_from": lambda session: -session.in_bytes,
        "uptime": lambda session: session.started_ns,
        "rtt": lambda session: -session.round_trip_ns,
    }


def _connection(session: Session, now_ns: int, subscriptions: Subscriptions) -> dict[str, Any]:
    options = session.options
    document: dict[str, Any] = {
        "cid": session.client_id,
        "kind": "Client",
        "type": session.peer.transport,
        "ip": session.peer.host,
        "port": session.peer.port,
        "start": format_time(session.started_ns),
        "uptime": format_uptime(now_ns - session.started_ns),
        "pending_bytes": _pending(session),
        "in_msgs": session.in_messages,
        "out_msgs": session.out_messages,
        "in_bytes": session.in_bytes,
        "out_bytes": session.output.written,
        "subscriptions": len(session.subscriptions),
    }
    if session.round_trip_ns:
        document["rtt"] = f"{session.round_trip_ns / 1000:g}µs"
    for name in ("name", "lang", "version"):
        if value := getattr(options, name):
            document[name] = value
    document["account"] = session.account.name
    if session.identity.name:
        document["authorized_user"] = session.identity.name
    if session.peer.is_tls:
        document["tls_version"] = session.peer.tls_version
    if subscriptions == "list" and session.subscriptions:
        document["subscriptions_list"] = [
            subscription.pattern.decode(errors="backslashreplace")
            for subscription in session.subscriptions.values()
        ]
    elif subscriptions == "detail" and session.subscriptions:
        document["subscriptions_list_detail"] = [
            subscription_detail(session, sid) for sid in session.subscriptions
        ]
    return document


def subscription_detail(session: Session, sid: bytes) -> dict[str, Any]:
    """One subscription of a session, by its id."""
    subscription = session.subscriptions[sid]
    document: dict[str, Any] = {
        "account": session.account.name,
        "subject": subscription.pattern.decode(errors="backslashreplace"),
        "sid": sid.decode(errors="backslashreplace"),
        "msgs": subscription.delivered,
        "cid": session.client_id,
    }
    if subscription.queue:
        document["qgroup"] = subscription.queue.decode(errors="backslashreplace")
    if subscription.messages_max >= 0:
        document["max"] = subscription.messages_max
    return document


def _pending(session: Session) -> int:
    return session.output.size + session.output.unsent


def format_uptime(duration_ns: int) -> str:
    """As nats-server writes it: ``1d2h3m4s``, without leading zero parts."""
    seconds = max(0, duration_ns) // 1_000_000_000
    text = ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        count, seconds = divmod(seconds, size)
        if count or text:
            text += f"{count}{unit}"
    return f"{text}{seconds}s"
