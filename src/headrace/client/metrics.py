"""What a connection has done, as numbers: for a log line, a test, or a scraper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Final, Protocol, Self
from urllib.parse import SplitResult

from ..errors import ConfigurationError
from ..exposition import label_text
from ..field_docs import described, descriptions
from ..web.pages import NUMBERS, Page, PageServer, plain
from .net.session import Session

__all__ = ["ConnectionStats", "MetricsServer", "prometheus"]

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


@described
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
    """Messages that came from the server."""

    in_bytes: int
    """Bytes that came from the server, protocol lines included."""

    out_messages: int
    """Publishes handed to the link, answers to messages among them; requests are counted by themselves."""

    out_bytes: int
    """Bytes written to the link."""

    unsent_bytes: int
    """Bytes of output that have not reached the socket yet."""

    subscriptions: int
    """Subscriptions at this moment."""

    pending_messages: int
    """Messages received by subscriptions and not taken yet."""

    pending_bytes: int
    """Bytes of messages received by subscriptions and not taken yet."""

    dropped_messages: int
    """Messages lost because a subscription's limits were reached."""

    requests: int
    """Requests sent, those of the JetStream API and awaited publishes among them."""

    requests_in_flight: int
    """Requests sent and not answered yet."""

    publishes: int
    """Messages given to windowed publishers."""

    publishes_in_flight: int
    """Messages of windowed publishers sent, and neither acknowledged nor failed."""

    publishes_acked: int
    """Messages of windowed publishers that their streams have."""

    publishes_failed: int
    """Messages of windowed publishers that were given up."""

    waiting_for_leader: int
    """Calls and publishers that wait until a leader is elected, at this moment."""

    leader_waits: int
    """How often a call or a publisher began to wait for a leader."""

    pulls: int
    """Pull requests sent."""

    answers: int
    """Answers to consumers' messages: ack, nak, term and in progress. ``ack_sync`` is a request."""


class Counted(Protocol):
    """A connection."""

    def stats(self) -> ConnectionStats: ...


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
        if help_ := _help().get(field.name):
            lines.append(f"# HELP {name} {help_.replace('`', '')}")
        lines.append(f"# TYPE {name} {'gauge' if gauge else 'counter'}")
        lines += [f"{name}{labels} {int(getattr(stats, field.name))}" for stats, labels in rows]
    return "\n".join(lines) + "\n"


@cache
def _help() -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in descriptions(ConnectionStats).items()}


class MetricsServer:
    """Serves the numbers of some connections at ``/metrics``, for Prometheus.

    ::

        async with MetricsServer({"orders": connection}, port=9464) as server:
            print(server.url)

    Each connection has the label ``connection``, which is its key.

    Args:
        connections: may be changed meanwhile.
        host, port: where to listen; port 0 is any free one.
    """

    def __init__(
        self, connections: Mapping[str, Counted], *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._connections = connections
        self._host = host
        self._port = port
        self._server = PageServer(self._page)

    async def __aenter__(self) -> Self:
        """Listen. Raises ConfigurationError: the address cannot be used."""
        try:
            await self._server.listen(self._host, self._port)
        except OSError as error:
            raise ConfigurationError(
                f"metrics cannot be served at {self._host}:{self._port}: {error}"
            ) from error
        self._port = self._server.port
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop listening, and end what is being served."""
        await self._server.close()

    @property
    def url(self) -> str:
        """Where the numbers are."""
        return f"http://{self._host}:{self._port}/metrics"

    def _page(self, url: SplitResult) -> Page:
        if url.path != "/metrics":
            return plain(404, "the numbers are at /metrics\n")
        rows = [(each.stats(), {"connection": n}) for n, each in self._connections.items()]
        return Page(200, NUMBERS, prometheus(rows).encode())


def _labels(labels: Mapping[str, str]) -> str:
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise ConfigurationError(
                f"label {name!r}; accepted are letters, digits and underscores, no digit first"
            )
    return label_text(labels.items())
