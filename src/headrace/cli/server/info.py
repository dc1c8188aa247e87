"""``headrace server info`` and ``headrace server ping``."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import click
import msgspec

from ...api.base import to_wire
from ...api.messages import AccountInfo
from ...documents import DocumentError, read_json
from ...errors import HeadraceError
from ..shared.errors import Failure
from ..shared.output import Sheet
from ..shared.units import bytes_text, count_text, duration_text
from ..shared.verbs import Session, online
from .pages import MONITOR, page

_PINGS = 5


@online(MONITOR)
async def info(session: Session, monitor: str) -> None:
    """Show the server, who we are there, and what our account holds."""
    server = session.connection.server_info
    account: AccountInfo | None = None
    if server.jetstream:
        try:
            account = await session.js.account_info()
        except HeadraceError as error:
            session.output.note(f"JetStream: {error}")
    user = await who_we_are(session)
    try:
        varz = await page(session, "varz", monitor)
    except Failure:
        if monitor:
            raise
        varz = {}
    sheet = Sheet(
        " ".join(filter(None, ("Server", server.said_name, "at", session.connection.server)))
    )
    sheet.section(
        "",
        [
            (
                "Version",
                server.said_version
                + (f" ({varz['git_commit']})" if varz.get("git_commit") else ""),
            ),
            ("Server id", server.server_id),
            ("Uptime", varz.get("uptime")),
            ("Cluster", server.cluster),
            ("Login", "needed" if server.auth_required else "not needed"),
            (
                "TLS",
                "needed" if server.tls_required else "possible" if server.tls_available else "no",
            ),
            ("Largest message", bytes_text(server.max_payload)),
            ("JetStream", "yes" if server.jetstream else "no; `headrace serve -js` has it"),
            ("Domain", server.domain),
        ],
    )
    sheet.section(
        "We are",
        [
            ("User", user.get("user")),
            ("Account", user.get("account")),
            ("Address", server.client_ip),
        ],
    )
    if varz:
        sheet.section("Load", _load(varz))
    if account is not None:
        sheet.section("Our streams", _account(account))
    document = {
        "server": msgspec.to_builtins(server),
        "user": user,
        "account": to_wire(account) if account is not None else None,
        "varz": varz or None,
    }
    session.output.show(document, sheet)


async def who_we_are(session: Session) -> dict[str, Any]:
    """What the server says of our user; empty where it does not say."""
    try:
        answer = await session.connection.request("$SYS.REQ.USER.INFO")
    except HeadraceError:
        return {}  # an old server, or one that does not let us ask
    try:
        found = read_json(answer.payload)
    except DocumentError:
        return {}
    data = found.get("data") if isinstance(found, dict) else None
    return data if isinstance(data, dict) else {}


def _load(varz: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("Connections", f"{varz.get('connections', 0):,} of {varz.get('max_connections', 0):,}"),
        ("Subscriptions", f"{varz.get('subscriptions', 0):,}"),
        ("Memory", bytes_text(varz.get("mem", 0))),
        ("Processor", f"{varz.get('cpu', 0):g}% of {varz.get('cores', 1)} cores"),
        ("Received", f"{varz.get('in_msgs', 0):,} messages, {bytes_text(varz.get('in_bytes', 0))}"),
        ("Sent", f"{varz.get('out_msgs', 0):,} messages, {bytes_text(varz.get('out_bytes', 0))}"),
        ("Slow consumers", f"{varz.get('slow_consumers', 0):,}"),
    ]


def _account(account: AccountInfo) -> list[tuple[str, object]]:
    limits = account.limits
    return [
        ("Streams", f"{account.streams:,} of {count_text(limits.max_streams)}"),
        ("Consumers", f"{account.consumers:,} of {count_text(limits.max_consumers)}"),
        ("Disk", f"{bytes_text(account.storage)} of {bytes_text(limits.max_storage)}"),
        ("Memory", f"{bytes_text(account.memory)} of {bytes_text(limits.max_memory)}"),
        ("API calls", f"{account.api.total:,}, {account.api.errors:,} of them refused"),
    ]


@online(
    click.option(
        "--count",
        "--iterations",
        type=click.IntRange(1),
        default=_PINGS,
        help=f"how often to measure ({_PINGS})",
    ),
    name="ping",
)
async def ping(session: Session, count: int) -> None:
    """Measure the time to the server and back."""
    loop = asyncio.get_running_loop()
    times = []
    for _ in range(count):
        began = loop.time()
        await session.connection.flush()
        times.append(loop.time() - began)
    document = {
        "server": session.connection.server,
        "rtt_ms": [round(each * 1000, 4) for each in times],
        "median_ms": round(statistics.median(times) * 1000, 4),
    }
    text = (
        f"{session.connection.server}: median {duration_text(statistics.median(times))}, "
        f"least {duration_text(min(times))}, most {duration_text(max(times))} of {count}"
    )
    session.output.show(document, text)
