"""What a connection has done, as numbers: for a log line, a test, or a scraper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from ..errors import ConfigurationError
from .net.session import Session

__all__ = ["ConnectionStats", "prometheus"]

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStats:
    """The numbers of one connection since it was made. Taken as they are at one moment.

    They are counted per batch and cost nothing per message; so what waits to be written is in
    ``unsent_bytes`` and not yet in ``out_messages`` and ``out_bytes``.
    """

    connected: bool
    """Whether there is a link at this moment."""

    reconnects: int
    """How often the connection was restored."""

    errors: int
    """Errors that no caller was waiting for; each was an event, too."""

    in_messages: int
    in_bytes: int
    """What came from the server, protocol lines included."""

    out_messages: int
    """Publishes handed to the link, answers to messages among them; requests are counted by themselves."""

    out_bytes: int
    unsent_bytes: int
    """Output that has not reached the socket yet."""

    subscriptions: int
    pending_messages: int
    """Received by subscriptions, and not taken yet."""

    pending_bytes: int
    dropped_messages: int
    """Lost because a subscription's limits were reached."""

    requests: int
    """Requests sent, those of the JetStream API and awaited publishes among them."""

    requests_in_flight: int
    publishes: int
    """Messages given to windowed publishers …"""

    publishes_in_flight: int
    """… sent, and neither acknowledged nor failed …"""

    publishes_acked: int
    publishes_failed: int
    waiting_for_leader: int
    """Calls and publishers that wait until a leader is elected, at this moment."""

    leader_waits: int
    """How often one began to wait for that."""

    pulls: int
    """Pull requests sent."""

    answers: int
    """Answers to consumers' messages: ack, nak, term and in progress. ``ack_sync`` is a request."""


def stats_of(session: Session) -> ConnectionStats:
    """Count now."""
    counts, link, outbox = session.counts, session.link, session.outbox
    publishers = list(session.publishers)
    subscriptions = list(session.subscriptions)
    return ConnectionStats(
        connected=link is not None,
        reconnects=session.reconnects,
        errors=counts.errors,
        in_messages=counts.in_messages,
        in_bytes=counts.in_bytes + (link.received_bytes if link is not None else 0),
        out_messages=counts.published + outbox.written_publishes,
        out_bytes=outbox.written_bytes,
        unsent_bytes=outbox.unsent_bytes,
        subscriptions=len(subscriptions),
        pending_messages=sum(each.pending_messages for each in subscriptions),
        pending_bytes=sum(each.pending_bytes for each in subscriptions),
        dropped_messages=counts.dropped,
        requests=session.requests.sent,
        requests_in_flight=len(session.requests),
        publishes=counts.sent + sum(each.sent for each in publishers),
        publishes_in_flight=sum(each.in_flight for each in publishers),
        publishes_acked=counts.acked + sum(each.acked for each in publishers),
        publishes_failed=counts.failed + sum(each.failed for each in publishers),
        waiting_for_leader=session.waits.count,
        leader_waits=session.waits.total,
        pulls=counts.pulls,
        answers=counts.answers,
    )


_GAUGES: Final = frozenset({
    "connected", "unsent_bytes", "subscriptions", "pending_messages", "pending_bytes", "requests_in_flight",
    "publishes_in_flight", "waiting_for_leader",
})  # fmt: skip


def prometheus(connections: Iterable[tuple[ConnectionStats, Mapping[str, str]]]) -> str:
    """The numbers of some connections, each with its labels, in Prometheus' text format.

    ::

        text = prometheus([(connection.stats(), {"connection": "orders"})])

    Each name begins with ``headrace_client_``; counters end with ``_total``. Raises ConfigurationError
    for a label with an impossible name.
    """
    rows = [(stats, _labels(labels)) for stats, labels in connections]
    lines: list[str] = []
    for field in fields(ConnectionStats):
        gauge = field.name in _GAUGES
        name = f"headrace_client_{field.name}{'' if gauge else '_total'}"
        lines.append(f"# TYPE {name} {'gauge' if gauge else 'counter'}")
        lines += [f"{name}{labels} {int(getattr(stats, field.name))}" for stats, labels in rows]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise ConfigurationError(
                f"label {name!r}; accepted are letters, digits and underscores, no digit first"
            )
    shown = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return "{" + ",".join(shown) + "}" if shown else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
