"""The newest look for scrapers: Prometheus' text format at ``/metrics``."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from .. import metrics
from ..sources import Sources


async def page(sources: Sources, request: Request) -> Any:
    """The numbers of the newest look; asking does not look anew."""
    del request
    found = await sources.alerts.found()
    text = metrics.prometheus(sources.watcher.console(sources.followers, found))
    return Response(
        text, headers={"cache-control": "no-store"}, media_type="text/plain; version=0.0.4"
    )


ROUTES: Final = (("GET", "/metrics", page),)
