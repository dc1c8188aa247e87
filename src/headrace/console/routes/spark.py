"""Spark queries, as far as they show their progress: a query with ``durable`` keeps it on a consumer."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from ...api.roles import TOLD
from ..sources import Sources


async def table(sources: Sources, request: Request) -> Any:
    """Every query with messages behind, and how old the first of these is, as of the newest look."""
    del request
    look = sources.watcher.look
    found = sorted(
        ((look.consumers[key], age) for key, age in look.ages.items()),
        key=lambda each: -each[0].num_pending,
    )
    return {
        "queries": [
            {
                "name": info.name,
                "stream": info.stream_name,
                "consumer": info.name,
                "messages_behind": info.num_pending,
                "seconds_behind": age,
                "up_to": info.ack_floor.stream_seq or info.delivered.stream_seq,
                "at": info.config.metadata.get(TOLD) or info.created,
            }
            for info, age in found
        ]
    }


ROUTES: Final = (("GET", "/api/spark", table),)
