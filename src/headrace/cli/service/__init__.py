"""``headrace service …``: services that answer on ``$SRV``, of any NATS client (ADR-32)."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

service = LazyGroup(
    "service",
    {
        "ls": Verb("list the services, or the instances of one", "service.verbs:ls", ("list",)),
        "info": Verb("show the instances of a service and their endpoints", "service.verbs:info"),
        "stats": Verb("show what each endpoint has done", "service.verbs:stats"),
        "ping": Verb("measure the time to each instance and back", "service.verbs:ping"),
        "serve": Verb("be a service, for trying and for tests", "service.serve:serve"),
    },
    "Find services, look at them, and be one.",
)
