"""Endpoints for operators: health, status, counts, events, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..._version import __version__
from .. import limits
from ..errors import forbidden
from ..models import rfc3339
from ..runtime.runtime import Runtime
from ..seeds import left_over
from ..service import page_reads
from ..states import State
from ..store import Row, Tx
from . import shapes
from .jobs.pull import dead_counts_of
from .request.endpoint import CURSORS, Endpoint, Parameter, reply
from .request.incoming import header, is_admin, list_links, page_of, require_admin

__all__ = ["ENDPOINTS"]

_INITIALIZED: Final = 3  # the predecessor's word for a running service


async def live(runtime: Runtime, request: Request) -> Response:
    del runtime, request
    return reply(shapes.Health("alive"))


async def ready(runtime: Runtime, request: Request) -> Response:
    del request
    if runtime.draining.is_set():
        return reply(shapes.Health("draining"), 503)
    failing = sorted(runtime.parts.failing)
    problem = await runtime.probe.problem()
    if problem is not None:
        return reply(shapes.Health("unavailable", problem, failing), 503)
    return reply(shapes.Health("ready", failing=failing))


async def status(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)

    def read(tx: Tx) -> tuple[Any, set[tuple[str, str]]]:
        left = {(one.channel_id, one.consumer_id) for one in left_over(tx)}
        return page_reads.consumer_counts(tx), left

    async with runtime.depths.counting:
        rows, left = await runtime.database.read(read)
    return reply(
        shapes.Status(
            AppStatus=_INITIALIZED,
            version=__version__,
            node=runtime.node,
            database=runtime.database.name,
            consumers=[
                shapes.ConsumerStatus(
                    row["channel_id"],
                    row["consumer_id"],
                    row["kind"],
                    bool(row["paused"]),
                    row["disabled_reason"],
                    None if row["failing_since_us"] is None else rfc3339(row["failing_since_us"]),
                    {state.name: counts.get(state, 0) for state in State},
                    (row["channel_id"], row["consumer_id"]) in left,
                )
                for row, counts in rows
            ],
            failing=[
                shapes.FailingPart(part, failing.reason, rfc3339(failing.since_us), failing.tries)
                for part, failing in sorted(runtime.parts.failing.items())
            ],
        )
    )


async def dead_status(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    async with runtime.depths.counting:
        return reply(dead_counts_of(await runtime.database.read(page_reads.consumer_counts)))


async def job_status(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)

    found: dict[str, dict[str, list[shapes.StateCount]]] = {}

    def read(tx: Tx, rows: Sequence[tuple[Row, dict[State, int]]]) -> None:
        for row, counts in rows:
            found.setdefault(row["channel_id"], {})[row["consumer_id"]] = [
                _state_count(tx, row["seq"], state, count)
                for state, count in sorted(counts.items())
                if count
            ]

    async with runtime.depths.counting:
        rows = await runtime.database.read(page_reads.consumer_counts)
        for at in range(0, len(rows), limits.METRICS_SLICE):
            part = rows[at : at + limits.METRICS_SLICE]
            await runtime.database.read(partial(read, rows=part))
    return reply(found)


def _state_count(tx: Tx, consumer_seq: int, state: State, count: int) -> shapes.StateCount:
    def at(row: Row | None) -> str | None:
        return None if row is None else rfc3339(row["created_us"])

    oldest = tx.one("oldest_of_state", consumer_seq=consumer_seq, state=int(state))
    newest = tx.one("newest_of_state", consumer_seq=consumer_seq, state=int(state))
    return shapes.StateCount(int(state), count, at(oldest), at(newest))


async def events(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    found = await runtime.database.read(
        lambda tx: page_of(tx, runtime, request, "events", "events")
    )
    shown = [
        shapes.EventShape(
            rfc3339(row["at_us"]), row["kind"], row["channel_id"], row["consumer_id"], row["detail"]
        )
        for row in found.rows
    ]
    return reply(shapes.Events(shown, list_links(request.url.path, found)))


async def metrics(runtime: Runtime, request: Request) -> Response:
    named = is_admin(runtime, request)
    if not named and header(request, "authorization"):
        raise forbidden("Authorization")
    page = await runtime.depths.page(named=named)

    def text() -> str:
        return (page if named else page.totals()).text(limits.METRICS_SERIES_MAX)

    # Not on the event loop: others publish meanwhile.
    return PlainTextResponse(await asyncio.to_thread(text), media_type="text/plain; version=0.0.4")


def _get(
    path: str,
    handler: Any,
    summary: str,
    answers: dict[int, Any],
    *,
    admin: bool = True,
    parameters: Sequence[Parameter] = (),
) -> Endpoint:
    return Endpoint(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        answers=answers,
        parameters=tuple(parameters),
        tag="operations",
        admin=admin,
        errors=(400,) if admin else (),
    )


ENDPOINTS: Final = (
    _get("/health/live", live, "The process answers", {200: shapes.Health}, admin=False),
    _get(
        "/health/ready",
        ready,
        "A write was stored within the last second, and the service is not draining",
        {200: shapes.Health, 503: shapes.Health},
        admin=False,
    ),
    _get(
        "/_status",
        status,
        "What runs, and every consumer's counts; no secrets",
        {200: shapes.Status},
    ),
    _get("/dlq-status", dead_status, "Consumers with dead jobs", {200: shapes.DeadCounts}),
    _get(
        "/job-status",
        job_status,
        "Counts by channel, consumer and state",
        {200: dict[str, dict[str, list[shapes.StateCount]]]},
    ),
    _get(
        "/v2/events",
        events,
        "What people should know of, newest first",
        {200: shapes.Events},
        parameters=CURSORS,
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        handler=metrics,
        summary="Prometheus text format; names of channels and consumers with the admin token or a key, "
        "without either totals",
        answers={200: str},
        tag="operations",
        scopes=("operate",),
    ),
)
