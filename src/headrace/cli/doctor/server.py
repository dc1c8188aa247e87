"""What is wrong with the server: reached, JetStream, limits, load, clock."""

from __future__ import annotations

import asyncio
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ...api.errors import Errors
from ...doctor import look_at_all
from ...errors import HeadraceError, JetStreamApiError
from ...findings.account import judge_account, judge_accounts
from ...findings.finding import Findings
from ..server.info import who_we_are
from ..server.pages import page, pages
from ..shared.errors import Failure
from ..shared.units import counted, duration_text, moment_of
from ..shared.verbs import Session
from .machine import look_at_store

_PINGS: Final = 5
_SLOW_S: Final = 0.1
_CLOCK_S: Final = 1.0
_FULL: Final = 0.9
_LOCAL: Final = ("127.0.0.1", "::1", "localhost")


async def look_at(findings: Findings, session: Session, monitor: str) -> None:
    """Look at the server, and at all that we may see there: our account, or as its system account all."""
    if await _look_at_server(findings, session, monitor):
        await look_at_all(findings, session.js)


async def _look_at_server(findings: Findings, session: Session, monitor: str) -> bool:
    """Returns whether there is JetStream to look at in our account."""
    connection = session.connection
    info = connection.server_info
    said = ", ".join(filter(None, (info.said_version, info.said_name)))
    findings.ok("server", f"{connection.server} answers: {said}")
    await _look_at_time(findings, session)
    if info.ldm:
        findings.problem("server", "it is about to stop (lame duck mode)", "headrace serve -js")
    if not info.headers:
        findings.problem("server", "headers are turned off; JetStream's clients need them")
    varz = await _look_at_load(findings, session, monitor)
    if not info.jetstream:
        text = "the server has no JetStream: no streams, no buckets"
        findings.problem("jetstream", text, "headrace serve -js -sd DIR    serves it from DIR")
        return False
    try:
        account = await session.js.account_info()
    except JetStreamApiError as error:
        if error.err_code != Errors.NOT_ENABLED_FOR_ACCOUNT.err_code:
            raise
        await _look_at_accounts(findings, session, monitor)
        return False
    findings.ok(
        "jetstream",
        f"{counted(account.streams, 'stream')}, {counted(account.consumers, 'consumer')}",
    )
    judge_account(findings, account)
    store = ((varz.get("jetstream") or {}).get("config") or {}).get("store_dir", "")
    if store and any(host in connection.server for host in _LOCAL):
        await asyncio.to_thread(_look_at_its_store, findings, Path(store))
    return True


async def _look_at_accounts(findings: Findings, session: Session, monitor: str) -> None:
    """Judge what all accounts have, where ours has no streams, and monitoring answers us."""
    name = (await who_we_are(session)).get("account") or "of this user"
    try:
        # Over the system account one of them has another name.
        found = await pages(
            session, "jsz", monitor, accounts=True, streams=True, consumers=True, consumer=True,
            config=True,
        )  # fmt: skip
    except Failure:
        findings.problem(
            "jetstream",
            f"account {name} has no JetStream, and this user may not look at other accounts",
            "--user NAME    of an account with JetStream, or of the system account, which sees all",
        )
        return
    findings.ok(
        "jetstream",
        f"account {name} has none: all accounts were looked at, but for their groups and pipelines",
    )
    judge_accounts(findings, found, datetime.now(UTC))


async def _look_at_time(findings: Findings, session: Session) -> None:
    loop = asyncio.get_running_loop()
    times = []
    for _ in range(_PINGS):
        began = loop.time()
        await session.connection.flush()
        times.append(loop.time() - began)
    rtt = statistics.median(times)
    if rtt > _SLOW_S:
        text = f"{duration_text(rtt)} there and back: awaited calls are slow"
        findings.note("distance", text, "headrace server ping    measures it again")
    else:
        findings.ok("distance", f"{duration_text(rtt)} there and back")
    try:
        before = datetime.now(UTC)
        async for info in session.js.streams():
            difference = (
                (moment_of(info.ts) - datetime.now(UTC)).total_seconds() if info.ts else 0.0
            )
            elapsed = (datetime.now(UTC) - before).total_seconds()
            _judge_clock(findings, difference, elapsed)
            return
    except HeadraceError:
        return  # said where JetStream is looked at


def _look_at_its_store(findings: Findings, directory: Path) -> None:
    if directory.exists():  # not in a container, which sees another disk
        look_at_store(findings, directory)


def _judge_clock(findings: Findings, difference: float, elapsed: float) -> None:
    """The difference of the clocks, known up to ``elapsed`` seconds."""
    if abs(difference) - elapsed > _CLOCK_S:
        ahead = "ahead" if difference > 0 else "behind"
        text = f"the server's clock is {duration_text(abs(difference))} {ahead}: ages and pauses are off"
        findings.problem("clock", text, "timedatectl set-ntp true")
    else:
        findings.ok("clock", "as the server's")


async def _look_at_load(findings: Findings, session: Session, monitor: str) -> dict[str, Any]:
    try:
        varz = await page(session, "varz", monitor)
        health = await page(session, "healthz", monitor)
    except Failure as failure:
        if monitor:
            findings.problem("monitoring", failure.told.text)
        else:
            text = "the server cannot be asked about its load"
            mend = "headrace doctor --monitor http://HOST:8222    with `serve -m 8222`"
            findings.note("monitoring", text, mend)
        return {}
    if health.get("status") != "ok":
        mend = "headrace server report health"
        text = str(health.get("error") or health.get("status"))
        findings.problem("health", text, mend, name="store-failed")
    else:
        findings.ok("health", f"ok, up for {varz.get('uptime')}")
    slow = varz.get("slow_consumers", 0)
    if slow:
        text = f"{slow:,} connections were cut because they read too slowly"
        mend = "headrace server report connections --sort pending"
        findings.note("slow consumers", text, mend, name="slow-clients", clients=slow)
    connections, most = varz.get("connections", 0), varz.get("max_connections", 0)
    if most and connections > most * _FULL:
        text = f"{connections:,} of {most:,} allowed"
        mend = (
            "max_connections: N    in the configuration file, then: headrace serve -sl reload=PID"
        )
        findings.problem(
            "connections", text, mend, name="connections-full", used=connections, limit=most
        )
    return varz
