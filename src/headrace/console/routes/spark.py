"""Spark queries, as far as they show their progress: a query with ``durable`` keeps it on a consumer."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request

from ...api.consumers import ConsumerInfo
from ...api.times import parse_time
from ...client.jetstream.stored_message import if_found
from ...errors import HeadraceError
from ..sources import Sources

ROLE: Final = "headrace.role"
SPARK: Final = "spark-progress"
ASKED_MAX: Final = 20  # queries for which the age of the first message behind is asked, too
_NS: Final = 1_000_000_000


async def table(sources: Sources, request: Request) -> Any:
    """Every query with messages behind, and how old the first of these is."""
    del request
    found = [
        info
        for info in sources.watcher.look.consumers.values()
        if info.config.metadata.get(ROLE) == SPARK
    ]
    found.sort(key=lambda info: -info.num_pending)
    ages = await asyncio.gather(*(_age_s(sources, info) for info in found[:ASKED_MAX]))
    return {
        "queries": [
            {
                "name": info.name,
                "stream": info.stream_name,
                "consumer": info.name,
                "messages_behind": info.num_pending,
                "seconds_behind": ages[index] if index < len(ages) else None,
                "up_to": info.ack_floor.stream_seq or info.delivered.stream_seq,
                "at": info.delivered.last_active or info.created,
            }
            for index, info in enumerate(found)
        ]
    }


async def _age_s(sources: Sources, info: ConsumerInfo) -> float | None:
    """Seconds since the first message behind was stored; 0 with none, None if that is not known."""
    if not info.num_pending:
        return 0.0
    done = info.ack_floor.stream_seq or info.delivered.stream_seq
    subject = info.config.filter_subject or ">"
    if info.config.filter_subjects:
        return None  # several filters: one question each would not tell which is first
    try:
        stream = await sources.js.stream(info.stream_name)
        message = await if_found(stream.get_next_message(subject, done + 1))
    except HeadraceError:
        return None  # deleted meanwhile; the next look says so
    if message is None or not info.ts:
        return None
    return max(0.0, (parse_time(info.ts) - message.timestamp_ns) / _NS)


ROUTES: Final = (("GET", "/api/spark", table),)
