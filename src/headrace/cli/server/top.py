"""``headrace server top``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import click

from ..shared.output import Table
from ..shared.units import DURATION, bytes_text
from ..shared.verbs import Session, online
from .pages import MONITOR, page

_CLEAR: Final = "\x1b[H\x1b[2J"
_SORTS: Final = {"out-bytes": "out_bytes", "in-bytes": "in_bytes", "out-msgs": "out_msgs",
    "in-msgs": "in_msgs", "pending": "pending_bytes", "subs": "subscriptions"}  # fmt: skip


@online(
    click.option("--interval", type=DURATION, default=1.0, help="between two looks (1s)"),
    click.option("--count", type=click.IntRange(1), default=None, help="end after this many looks"),
    click.option(
        "--sort", type=click.Choice(list(_SORTS)), default="out-bytes", help="(out-bytes)"
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
        document = _rates(then, now, _SORTS[sort], limit)
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
