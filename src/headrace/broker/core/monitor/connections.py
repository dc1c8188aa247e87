"""Monitoring of connections, with the shape and the options of nats-server's ``/connz``.

As in ``server``: JSON-ready, without secrets, free of cost while nobody asks. The newest connections that
have ended are remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from ....api.times import format_time
from ....errors import ConfigurationError
from ....subjects import overlaps
from ..net.session import Host

if TYPE_CHECKING:
    from ..accounts.accounts import Accounts
    from ..net.session import Session
    from ..net.subscription import Subscription
    from ..ports import Randomness, Storage

CONNECTIONS_PER_PAGE: Final = 1024
_STATES: Final = {
    **dict.fromkeys(("", "open", "0"), (True, False)),
    **dict.fromkeys(("closed", "1"), (False, True)),
    **dict.fromkeys(("any", "all", "2"), (True, True)),
}
"""Which connections are asked for: those that are open, those that have ended."""
ENDED_MAX: Final = 10_000  # of each broker, as nats-server; the oldest is forgotten for one more


class Monitored(Host, Protocol):
    """Implemented by the hub, which stands above this room."""

    about_store: Callable[[], dict[str, Any]]
    """Gives what the shell adds to ``/jsz``."""
    about_process: Callable[[], dict[str, Any]]
    """Gives what the shell adds to ``/varz`` where clients ask for it: processor, memory."""
    connections_total: int
    """How many connections there were since the start."""
    ended_connections: EndedConnections
    is_shutting_down: bool
    past_traffic: list[int]
    """Messages in and out, bytes in and out, of sessions that have ended."""
    random: Randomness
    server_id: str
    sessions: dict[int, Session]
    slow_consumers: int
    started_ns: int
    configured_ns: int
    started_monotonic_ns: int
    storage: Storage | None

    @property
    def accounts(self) -> Accounts: ...

    @property
    def storage_error(self) -> Exception | None:
        """Why the store accepts nothing more; None if it does."""


Subscriptions = Literal["", "list", "detail"]


def connz(
    hub: Monitored,
    *,
    offset: int = 0,
    limit: int = CONNECTIONS_PER_PAGE,
    cid: int = 0,
    account: str = "",
    user: str = "",
    sort: str = "",
    state: str = "",
    subject: str = "",
    subscriptions: Subscriptions = "",
) -> dict[str, Any]:
    """A page of the connections, sorted; only those of an account or a user, or with id ``cid``.

    With ``subject``, only those that listen to what it overlaps. Raises ConfigurationError for a sort or
    a state there is not.
    """
    sorts = _sorts()
    by = sorts.get(sort.lower() or "cid")
    if by is None:
        accepted = ", ".join(sorts)
        raise ConfigurationError(f"sort: {sort!r}; accepted are {accepted}")
    wanted = _STATES.get(state.lower())
    if wanted is None:
        raise ConfigurationError(f"state: {state!r}; accepted are open, closed and any")
    if sort.lower() in ("stop", "reason") and wanted != (False, True):
        raise ConfigurationError(f"sort by {sort.lower()} only valid on closed connections")
    found: list[Session | EndedConnection] = []
    if wanted[0]:
        found.extend(hub.sessions.values())
    if wanted[1]:
        found.extend(hub.ended_connections)
    if account:
        found = [each for each in found if _account(each) == account]
    if user:
        found = [each for each in found if _user(each) == user]
    if cid:
        found = [each for each in found if each.client_id == cid]
    if subject:
        found = [each for each in found if _listens(each, subject.encode())]
    found.sort(key=by)
    limit = max(1, min(limit, CONNECTIONS_PER_PAGE))
    page = found[max(0, offset) : max(0, offset) + limit]
    now_ns = hub.clock.now_ns()
    return {
        **head_of(hub),
        "num_connections": len(page),
        "total": len(found),
        "offset": max(0, offset),
        "limit": limit,
        "connections": [
            _ended(each)
            if isinstance(each, EndedConnection)
            else _open(each, now_ns, subscriptions)
            for each in page
        ],
    }


def head_of(hub: Monitored) -> dict[str, Any]:
    """What every page begins with: whose it is, and of when."""
    return {"server_id": hub.server_id, "now": format_time(hub.clock.now_ns())}


def _sorts() -> dict[str, Callable[[Session | EndedConnection], Any]]:
    """By which number connections are sorted: the largest first, but for ids and times."""
    return {
        "cid": lambda each: each.client_id,
        "start": lambda each: each.started_ns,
        "subs": lambda each: -len(_subscriptions(each)),
        "pending": lambda each: 0 if isinstance(each, EndedConnection) else -_pending(each),
        "msgs_to": lambda each: -each.out_messages,
        "msgs_from": lambda each: -each.in_messages,
        "bytes_to": lambda each: -_out_bytes(each),
        "bytes_from": lambda each: -each.in_bytes,
        "uptime": lambda each: each.started_ns,
        "rtt": lambda each: -each.round_trip_ns,
        "stop": lambda each: -each.stopped_ns if isinstance(each, EndedConnection) else 0,
        "reason": lambda each: each.reason if isinstance(each, EndedConnection) else "",
    }


def _account(each: Session | EndedConnection) -> str:
    return each.account if isinstance(each, EndedConnection) else each.account.name


def _user(each: Session | EndedConnection) -> str:
    return each.user if isinstance(each, EndedConnection) else each.identity.name


def _out_bytes(each: Session | EndedConnection) -> int:
    return each.out_bytes if isinstance(each, EndedConnection) else each.output.payload_bytes


def _subscriptions(each: Session | EndedConnection) -> Mapping[bytes, Subscription]:
    return {} if isinstance(each, EndedConnection) else each.subscriptions


def _listens(each: Session | EndedConnection, subject: bytes) -> bool:
    """Whether a connection has a subscription that hears something of ``subject``."""
    found = _subscriptions(each).values()
    return any(overlaps(subject, subscription.pattern) for subscription in found)


def _ended(record: EndedConnection) -> dict[str, Any]:
    return _shown(record, {"stop": format_time(record.stopped_ns), "reason": record.reason})


def _shown(record: EndedConnection, end: dict[str, Any], subscriptions: int = 0) -> dict[str, Any]:
    """What is shown of every connection; ``end`` says when and why it ended, if it did."""
    document: dict[str, Any] = {
        "cid": record.client_id,
        "kind": "Client",
        "type": record.transport,
        "ip": record.host,
        "port": record.port,
        "start": format_time(record.started_ns),
        **end,
        "uptime": format_uptime(record.stopped_ns - record.started_ns),
        "pending_bytes": 0,
        "in_msgs": record.in_messages,
        "out_msgs": record.out_messages,
        "in_bytes": record.in_bytes,
        "out_bytes": record.out_bytes,
        "subscriptions": subscriptions,
    }
    if record.round_trip_ns:
        document["rtt"] = f"{record.round_trip_ns / 1000:g}µs"
    said = {"name": record.name, "lang": record.lang, "version": record.version}
    said |= {"account": record.account, "authorized_user": record.user}
    said["tls_version"] = record.tls_version
    return document | {name: value for name, value in said.items() if value}


def _open(session: Session, now_ns: int, subscriptions: Subscriptions) -> dict[str, Any]:
    document = _shown(_record_of(session, now_ns), {}, len(session.subscriptions))
    document["pending_bytes"] = _pending(session)
    if session.peer.is_tls:
        document["tls_version"] = session.peer.tls_version  # empty before the handshake
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
        self._ended.append(_record_of(session, now_ns))


def _record_of(session: Session, now_ns: int) -> EndedConnection:
    """What there would be left of a session that ends now."""
    peer, options = session.peer, session.options
    return EndedConnection(
        session.client_id,
        peer.transport,
        peer.host,
        peer.port,
        session.started_ns,
        now_ns,
        session.close_reason,
        session.round_trip_ns,
        session.in_messages,
        session.out_messages,
        session.in_bytes,
        session.output.payload_bytes,
        options.name,
        options.lang,
        options.version,
        session.account.name,
        session.identity.name,
        peer.tls_version if peer.is_tls else "",
    )
