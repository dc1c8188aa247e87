"""``headrace server report`` and ``top``: what each connection, account and server uses, and who most."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import click

from ..shared.errors import Failure
from ..shared.output import Table
from ..shared.units import DURATION, bytes_text, count_text
from ..shared.verbs import Session, online
from .pages import MONITOR, page, pages

_REPORT_SORTS = {
    "in-bytes": "in_bytes", "out-bytes": "out_bytes", "in-msgs": "in_msgs", "out-msgs": "out_msgs",
    "pending": "pending_bytes", "subs": "subscriptions", "cid": "cid",
}  # fmt: skip


@online(
    click.option(
        "--sort", type=click.Choice(list(_REPORT_SORTS)), default="out-bytes", help="(out-bytes)"
    ),
    MONITOR,
)
async def connections(session: Session, sort: str, monitor: str) -> None:
    """Who is connected, what they send and receive, and what waits for them."""
    found: list[dict[str, Any]] = []
    for each in await pages(session, "connz", monitor, subs=False, auth=True, limit=10_000):
        found += each.get("connections") or []
    found.sort(key=lambda each: each.get(_REPORT_SORTS[sort], 0), reverse=sort != "cid")
    session.output.show(found, connection_table(found))


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


_CLEAR: Final = "\x1b[H\x1b[2J"
_TOP_SORTS: Final = {"out-bytes": "out_bytes", "in-bytes": "in_bytes", "out-msgs": "out_msgs",
    "in-msgs": "in_msgs", "pending": "pending_bytes", "subs": "subscriptions"}  # fmt: skip


@online(
    click.option("--interval", type=DURATION, default=1.0, help="between two looks (1s)"),
    click.option("--count", type=click.IntRange(1), default=None, help="end after this many looks"),
    click.option(
        "--sort", type=click.Choice(list(_TOP_SORTS)), default="out-bytes", help="(out-bytes)"
    ),
    click.option(
        "--limit", type=click.IntRange(1), default=20, help="how many connections to show (20)"
    ),
    MONITOR,
)
async def top(
    session: Session, interval: float, count: int | None, sort: str, limit: int, monitor: str
) -> None:
    """Show who sends and receives most, and how fast, until Ctrl-C."""
    looks, then = 0, await _look(session, monitor)
    while count is None or looks < count:
        await asyncio.sleep(interval)
        now = await _look(session, monitor)
        looks += 1
        document = _rates(then, now, _TOP_SORTS[sort], limit)
        then = now
        if not session.output.is_text:
            session.output.line(document, "")
        else:
            clear = _CLEAR if sys.stdout.isatty() else ""
            print(f"{clear}{_head(document)}\n")
            session.output.show(None, _table(document))
        sys.stdout.flush()


async def _look(session: Session, monitor: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    varz = await page(session, "varz", monitor)
    connz = await page(session, "connz", monitor, subs=False, limit=10_000)
    return {"at": loop.time(), "varz": varz, "connz": connz}


def _rates(then: dict[str, Any], now: dict[str, Any], sort: str, limit: int) -> dict[str, Any]:
    """What passed between two looks, a second."""
    elapsed = max(now["at"] - then["at"], 1e-6)
    counts = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
    before = {each["cid"]: each for each in then["connz"].get("connections") or []}
    rows = []
    for each in now["connz"].get("connections") or []:
        old = before.get(each["cid"], {})
        rates = {
            name: round((each.get(name, 0) - old.get(name, 0)) / elapsed, 1) for name in counts
        }
        names = ("cid", "name", "ip", "port", "lang", "uptime", "pending_bytes", "subscriptions")
        rows.append({**{name: each.get(name, "") for name in names}, **rates})
    rows.sort(key=lambda row: row[sort] or 0, reverse=True)
    old, varz = then["varz"], now["varz"]
    return {
        "server": varz.get("server_name", ""),
        "version": varz.get("version", ""),
        "uptime": varz.get("uptime", ""),
        "cpu": varz.get("cpu", 0),
        "mem": varz.get("mem", 0),
        "slow_consumers": varz.get("slow_consumers", 0),
        **{name: round((varz.get(name, 0) - old.get(name, 0)) / elapsed, 1) for name in counts},
        "connections": rows[:limit],
        "num_connections": len(rows),
    }


def _head(look: dict[str, Any]) -> str:
    return (
        f"{look['server']}  {look['version']}  up {look['uptime']}  cpu {look['cpu']:g}%  "
        f"memory {bytes_text(look['mem'])}  slow consumers {look['slow_consumers']}\n"
        f"in  {look['in_msgs']:,.0f} msg/s  {bytes_text(look['in_bytes'])}/s   "
        f"out  {look['out_msgs']:,.0f} msg/s  {bytes_text(look['out_bytes'])}/s   "
        f"{look['num_connections']} connections"
    )


def _table(look: dict[str, Any]) -> Table:
    table = Table(
        ("CID", "NAME", "FROM", "SUBS", "UNSENT", "MSG IN/s", "MSG OUT/s", "IN/s", "OUT/s",
         "UP"),
        right=frozenset(
            ("CID", "SUBS", "UNSENT", "MSG IN/s", "MSG OUT/s", "IN/s", "OUT/s")
        ),
        empty="nobody is connected",
    )  # fmt: skip
    for each in look["connections"]:
        table.add(
            each["cid"],
            each["name"] or each["lang"],
            f"{each['ip']}:{each['port']}",
            each["subscriptions"] or 0,
            bytes_text(each["pending_bytes"] or 0),
            f"{each['in_msgs']:,.0f}",
            f"{each['out_msgs']:,.0f}",
            bytes_text(each["in_bytes"]),
            bytes_text(each["out_bytes"]),
            each["uptime"],
        )
    return table
