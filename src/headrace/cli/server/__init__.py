"""``headrace server …``, ``account``, ``errors``, ``events``: how a server does, what it tells of itself."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

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

account = LazyGroup(
    "account",
    {"info": Verb("show who we are, and what our account holds", "server.info:info", ("nfo",))},
    "Look at the account of this connection.",
)
