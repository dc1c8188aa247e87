"""``headrace server …`` and ``headrace events``: how a server does, and what it tells of itself."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

__all__ = ["server"]

server = LazyGroup(
    "server",
    {
        "info": Verb("show the server, and what it holds", "server.info:info", ("i",)),
        "ping": Verb("measure the time there and back", "server.info:ping"),
        "report": Verb(
            "connections, accounts, JetStream, health", "server.report:report", ("rep",)
        ),
        "top": Verb("who sends and receives most, live", "server.top:top"),
        "check": Verb("checks for monitoring systems (Nagios, Prometheus)", "server.check:check"),
    },
    "Look at a server.",
)
