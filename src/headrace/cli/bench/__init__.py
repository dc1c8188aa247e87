"""``headrace bench …``: how fast a server is, seen from this machine and this client."""

from __future__ import annotations

from ..shared.lazy import LazyGroup, Verb

bench = LazyGroup(
    "bench",
    {
        "pub": Verb("publish as fast as it goes", "bench.publish:pub"),
        "sub": Verb("receive what somebody else publishes", "bench.core:sub"),
        "service": Verb("ask a service, one request after the other", "bench.core:service"),
        "fetch": Verb("take messages of a stream in batches", "bench.take:fetch"),
        "consume": Verb("take messages of a stream as they come", "bench.take:consume"),
        "kv": Verb("put and get keys", "bench.kv:kv"),
        "latency": Verb("requests and publishes one after the other", "bench.latency:latency"),
    },
    "Measure how fast a server is. The figures are of this machine, this network and this client.",
)
