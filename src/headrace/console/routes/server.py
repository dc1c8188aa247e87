"""The server itself: its numbers and its connections."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ..answers import RefusedError, query_number
from ..sources import Sources

CONNECTIONS_PAGE: Final = 200
SORTS: Final = ("cid", "subs", "pending", "msgs_to", "msgs_from", "bytes_to", "bytes_from", "rtt")


async def varz(sources: Sources, request: Request) -> Any:
    """The server's own numbers."""
    del request
    return await sources.monitoring("VARZ", {})


async def connections(sources: Sources, request: Request) -> Any:
    """A page of connections, the largest of ``sort`` first."""
    sort = request.query_params.get("sort", "cid")
    if sort not in SORTS:
        raise RefusedError(400, "not_accepted", f"sort: accepted are {', '.join(SORTS)}")
    options: dict[str, Any] = {
        "sort": sort,
        "auth": True,
        "limit": CONNECTIONS_PAGE,
        "offset": query_number(request, "offset", 0, 10_000_000),
    }
    return await sources.monitoring("CONNZ", options)


ROUTES: Final = (
    ("GET", "/api/server", varz),
    ("GET", "/api/connections", connections),
)
