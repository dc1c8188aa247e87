"""What is wrong at the server, and the command that mends it."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ..sources import Sources


async def alerts(sources: Sources, request: Request) -> Any:
    """What ``headrace doctor`` says of streams, consumers and groups."""
    del request
    return await sources.alerts.document()


ROUTES: Final = (("GET", "/api/alerts", alerts),)
