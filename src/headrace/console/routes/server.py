"""The server, its connections and accounts, what is wrong there, its pipelines and Spark queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from ...api.base import to_wire
from ...api.roles import TOLD
from ...documents import DocumentError, read_json
from ...errors import HeadraceError
from ..answers import RefusedError, query_number
from ..pipelines import pipeline_row
from ..sources import Sources, understood

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


SHOWN_MAX: Final = 1_000
STREAMS_ASKED: Final = 2_000
"""Streams of a server that are listed to count them by account, where it does not count them itself."""

_WHO: Final = "the server"
_WHO_AM_I: Final = "$SYS.REQ.USER.INFO"


async def own_account(sources: Sources, request: Request) -> Any:
    """Account of the console's user: who that is, what the account may use, and uses."""
    del request
    return {**to_wire(await sources.js.account_info()), **await _who(sources)}


async def accounts(sources: Sources, request: Request) -> Any:
    """Every account: connections, subscriptions, messages, streams, bytes; those with most first."""
    del request
    traffic = await sources.monitoring("ACCSTATZ", {"unused": True})
    stored = await sources.monitoring("JSZ", {"accounts": True})
    if understood(lambda: _are_streams_uncounted(stored), _WHO):
        stored = await sources.monitoring("JSZ", {"accounts": True, "streams": True})
    rows = understood(lambda: _rows(traffic, stored), _WHO)
    return {"accounts": rows[:SHOWN_MAX], "total": len(rows)}


def _are_streams_uncounted(stored: Mapping[str, Any]) -> bool:
    """Whether the server does not count the streams of accounts, and has so few that they can be listed."""
    details = stored.get("account_details") or ()
    uncounted = any("streams" not in each for each in details)
    return uncounted and 0 < _count(stored, "streams") <= STREAMS_ASKED


def _rows(traffic: Mapping[str, Any], stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    by_name = {each["name"]: each for each in stored.get("account_details") or ()}
    rows = [_row(each, by_name.get(each["acc"], {})) for each in traffic.get("account_statz") or ()]
    return sorted(rows, key=lambda row: (-row["connections"], -row["bytes"], row["name"]))


async def _who(sources: Sources) -> dict[str, str]:
    """The names of the user and its account; none where the server does not say, as old ones do."""
    try:
        reply = await sources.connection.request(_WHO_AM_I, b"", timeout=2.0)
        document = read_json(reply.payload)
    except (HeadraceError, DocumentError):
        return {}
    told = document.get("data") if isinstance(document, dict) else None
    if not isinstance(told, dict):
        return {}
    return {"user": str(told.get("user", "")), "account": str(told.get("account", ""))}


def _row(traffic: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    streams = stored.get("stream_detail")
    return {
        "name": traffic["acc"],
        "connections": _count(traffic, "conns"),
        "subscriptions": _count(traffic, "num_subscriptions"),
        "in_msgs": _count(traffic.get("received") or {}, "msgs"),
        "in_bytes": _count(traffic.get("received") or {}, "bytes"),
        "out_msgs": _count(traffic.get("sent") or {}, "msgs"),
        "out_bytes": _count(traffic.get("sent") or {}, "bytes"),
        "slow_consumers": _count(traffic, "slow_consumers"),
        "jetstream": bool(stored),
        "streams": stored.get("streams", len(streams) if streams is not None else None),
        "bytes": _count(stored, "storage") + _count(stored, "memory"),
    }


def _count(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) else 0


async def alerts(sources: Sources, request: Request) -> Any:
    """Findings of ``headrace doctor`` about streams, consumers and groups."""
    del request
    return await sources.alerts.document()


async def pipelines(sources: Sources, request: Request) -> Any:
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


async def queries(sources: Sources, request: Request) -> Any:
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


ROUTES: Final = (
    ("GET", "/api/server", varz),
    ("GET", "/api/connections", connections),
    ("GET", "/api/account", own_account),
    ("GET", "/api/accounts", accounts),
    ("GET", "/api/alerts", alerts),
    ("GET", "/api/pipelines", pipelines),
    ("GET", "/api/spark", queries),
)
