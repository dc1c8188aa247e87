"""``headrace server report connections|accounts|jetstream|health``."""

from __future__ import annotations

from typing import Any

import click

from ..shared.errors import Failure
from ..shared.output import Table
from ..shared.units import bytes_text, count_text
from ..shared.verbs import Session, online
from .pages import MONITOR, pages

_SORTS = {
    "in-bytes": "in_bytes", "out-bytes": "out_bytes", "in-msgs": "in_msgs", "out-msgs": "out_msgs",
    "pending": "pending_bytes", "subs": "subscriptions", "cid": "cid",
}  # fmt: skip


@online(
    click.option(
        "--sort", type=click.Choice(list(_SORTS)), default="out-bytes", help="(out-bytes)"
    ),
    click.option(
        "--top", type=click.IntRange(1), default=1000, metavar="N", help="the first N (1000)"
    ),
    MONITOR,
)
async def connections(session: Session, sort: str, top: int, monitor: str) -> None:
    """Who is connected, what they send and receive, and what waits for them."""
    found: list[dict[str, Any]] = []
    for each in await pages(session, "connz", monitor, subs=False, auth=True, limit=10_000):
        found += each.get("connections") or []
    found.sort(key=lambda each: each.get(_SORTS[sort], 0), reverse=sort != "cid")
    session.output.show(found[:top], connection_table(found[:top]))


def connection_table(found: list[dict[str, Any]]) -> Table:
    """Connections for people."""
    table = Table(
        ("CID", "NAME", "FROM", "ACCOUNT", "UP", "MSG IN", "MSG OUT", "IN", "OUT", "UNSENT", "SUBS"),
        right=frozenset(("CID", "MSG IN", "MSG OUT", "IN", "OUT", "UNSENT", "SUBS")),
        empty="nobody is connected",
    )  # fmt: skip
    for each in found:
        table.add(
            each.get("cid", ""),
            each.get("name", "") or each.get("lang", ""),
            f"{each.get('ip', '')}:{each.get('port', '')}",
            each.get("account", ""),
            each.get("uptime", ""),
            count_text(each.get("in_msgs", 0)),
            count_text(each.get("out_msgs", 0)),
            bytes_text(each.get("in_bytes", 0)),
            bytes_text(each.get("out_bytes", 0)),
            bytes_text(each.get("pending_bytes", 0)),
            each.get("subscriptions", 0),
        )
    return table


@online(MONITOR)
async def accounts(session: Session, monitor: str) -> None:
    """What each account uses: connections, messages, bytes."""
    found: list[dict[str, Any]] = []
    for each in await pages(session, "accstatz", monitor, unused=True):
        found += each.get("account_statz") or []
    table = Table(
        ("ACCOUNT", "CONNECTIONS", "SUBS", "MSGS IN", "MSGS OUT", "BYTES IN", "BYTES OUT", "SLOW"),
        right=frozenset(
            ("CONNECTIONS", "SUBS", "MSGS IN", "MSGS OUT", "BYTES IN", "BYTES OUT", "SLOW")
        ),
        empty="no accounts",
    )
    for each in found:
        received, sent = each.get("received", {}), each.get("sent", {})
        table.add(
            each.get("acc", ""),
            each.get("conns", 0),
            each.get("num_subscriptions", 0),
            count_text(received.get("msgs", 0)),
            count_text(sent.get("msgs", 0)),
            bytes_text(received.get("bytes", 0)),
            bytes_text(sent.get("bytes", 0)),
            each.get("slow_consumers", 0),
        )
    session.output.show(found, table)


@online(MONITOR)
async def jetstream(session: Session, monitor: str) -> None:
    """What each server stores, and how much it may."""
    found = await pages(session, "jsz", monitor)
    table = Table(
        ("SERVER", "DOMAIN", "STREAMS", "CONSUMERS", "MESSAGES", "DISK", "OF", "MEMORY", "OF", "API",
         "ERRORS"),
        right=frozenset(
            ("STREAMS", "CONSUMERS", "MESSAGES", "DISK", "OF", "MEMORY", "API", "ERRORS")
        ),
    )  # fmt: skip
    for each in found:
        config, api = each.get("config") or {}, each.get("api") or {}
        table.add(
            each.get("server_id", "")[:12],
            config.get("domain", ""),
            each.get("streams", 0),
            each.get("consumers", 0),
            count_text(each.get("messages", 0)),
            bytes_text(each.get("storage", 0)),
            bytes_text(config.get("max_storage", 0)),
            bytes_text(each.get("memory", 0)),
            bytes_text(config.get("max_memory", 0)),
            count_text(api.get("total", 0)),
            count_text(api.get("errors", 0)),
        )
    session.output.show(found, table)


@online(MONITOR)
async def health(session: Session, monitor: str) -> None:
    """Whether each server is healthy; the status is 1 if one is not."""
    found = await pages(session, "healthz", monitor, details=True)
    table = Table(("STATUS", "ERROR"))
    for each in found:
        problems = [each.get("error", ""), *(e.get("error", "") for e in each.get("errors") or [])]
        table.add(each.get("status", ""), "; ".join(filter(None, problems)))
    session.output.show(found, table)
    bad = [each for each in found if each.get("status") != "ok"]
    if bad:
        raise Failure(f"{len(bad)} of {len(found)} servers are not healthy")
