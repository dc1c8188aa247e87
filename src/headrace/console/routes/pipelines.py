"""Running pipelines, as they told last: their queries with state, lag and rates, and their graph."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ..pipelines import pipeline_row
from ..sources import Sources


async def table(sources: Sources, request: Request) -> Any:
    """All pipelines, as of the newest look."""
    del request
    watcher = sources.watcher
    look = watcher.look
    return {
        "pipelines": [
            pipeline_row(key, record, look.at_s) for key, record in sorted(look.pipelines.items())
        ],
        "problem": watcher.pipelines_problem,
    }


ROUTES: Final = (("GET", "/api/pipelines", table),)
