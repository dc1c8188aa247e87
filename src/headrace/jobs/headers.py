"""The headers that the service itself sends to an endpoint: a producer must not change them. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["RESERVED_HEADERS", "RESERVED_PREFIXES"]

RESERVED_HEADERS: Final = {
    *(
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
    ),
    *(
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ),
    *("x-request-id", "forwarded"),
}
RESERVED_PREFIXES: Final = ("x-broker-", "webhook-", "x-headrace-", "proxy-")
