"""``headrace doctor``: what is wrong on this machine and on the server, and the command that mends it.

``headrace.doctor`` looks at streams, groups and pipelines; ``headrace.findings`` judges.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import statistics
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from .._version import __version__
from ..api.errors import Errors
from ..doctor import look_at_all
from ..errors import ConfigurationError, HeadraceError, JetStreamApiError
from ..findings.account import judge_account, judge_accounts
from ..findings.finding import MARKS, Finding, Findings
from .context import Contexts
from .server.info import who_we_are
from .server.pages import MONITOR, page, pages
from .shared.connection_options import connection_options, given_above, where
from .shared.errors import Failure, explain
from .shared.output import Output, output_options, printable, terminal
from .shared.units import bytes_text, counted, duration_text, moment_of
from .shared.verbs import Session, command_of, connected, output_above, own_values, run_loop

_EXTRAS: Final = {
    "server": ("uvloop",),
    "jobs": ("starlette", "uvicorn", "httptools", "httpx2"),
    "spark": ("pyspark", "pyarrow"),
    "websocket": ("websockets",),
    "nkeys": ("cryptography",),
    "bcrypt": ("bcrypt",),
}
"""What the parts of Headrace need beyond the core."""

_FILES_WANTED: Final = 4096
_DISK_LEAST: Final = 1 << 30


def look_at_machine(findings: Findings, environ: Mapping[str, str]) -> None:
    """Versions, extras, limits, contexts, variables."""
    version = ".".join(map(str, sys.version_info[:3]))
    findings.ok("version", f"headrace {__version__}, Python {version}")
    missing = [
        extra
        for extra, modules in _EXTRAS.items()
        if any(importlib.util.find_spec(module) is None for module in modules)
    ]
    if missing:
        mend = f"pip install 'headrace[{','.join(missing)}]'"
        findings.note("extras", f"not installed: {', '.join(missing)}", mend)
    else:
        findings.ok("extras", "all installed")
    _look_at_limits(findings)
    _look_at_contexts(findings, environ)


def _look_at_limits(findings: Findings) -> None:
    try:
        import resource
    except ImportError:
        return  # not on Windows
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if hard != unlimited and hard < _FILES_WANTED:
        text = f"at most {hard:,} open files, so few connections"
        findings.problem("open files", text, f"ulimit -Hn {_FILES_WANTED}    (as root)")
    else:
        shown = "unlimited" if hard == unlimited else f"{hard:,}"
        findings.ok("open files", f"up to {shown} (now {soft:,}; `serve` raises it)")


def _look_at_contexts(findings: Findings, environ: Mapping[str, str]) -> None:
    contexts = Contexts(environ)
    name = contexts.selected
    if not name:
        url = environ.get("NATS_URL")
        findings.ok(
            "context", "none is selected" + (f"; NATS_URL is {_without_login(url)}" if url else "")
        )
        return
    try:
        contexts.read(name)
    except (Failure, ConfigurationError) as error:
        text = error.told.text if isinstance(error, Failure) else str(error)
        findings.problem("context", text, "headrace context select    selects none")
        return
    findings.ok("context", f"{name} is selected")
    if url := environ.get("NATS_URL"):
        text = f"NATS_URL ({_without_login(url)}) wins over the server of context {name}"
        findings.note("context", text, "unset NATS_URL")
    path = contexts.path(name)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        findings.note("context", f"others can read {path}", f"chmod 600 {path}")


def _without_login(url: str) -> str:
    """A URL, or several, without user and password."""
    parts = []
    for each in url.split(","):
        scheme, mark, rest = each.rpartition("://")
        parts.append(f"{scheme}{mark}{rest.rpartition('@')[2]}")
    return ",".join(parts)


def look_at_store(findings: Findings, directory: Path) -> None:
    """A store's directory: there, ours, with room."""
    if not directory.is_dir():
        findings.problem("store", f"{directory} is not a directory", f"mkdir -p {directory}")
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        findings.problem("store", f"{directory} cannot be written to", f"chown $USER {directory}")
        return
    usage = shutil.disk_usage(directory)
    text = f"{bytes_text(usage.free)} of {bytes_text(usage.total)} are free at {directory}"
    if usage.free < _DISK_LEAST or usage.free < usage.total * 0.05:
        findings.problem("disk", text, "headrace stream report    shows who holds what")
    else:
        findings.ok("disk", text)


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


_COLOURS = {"ok": "green", "note": "yellow", "problem": "bold red"}


@click.pass_context
def _examine(context: click.Context, /, **values: Any) -> int:
    """Look for what is wrong here and at the server, and name the command that mends it.

    \b
    headrace doctor
    headrace doctor --monitor http://127.0.0.1:8222

    It changes nothing. The status is 1 if there is a problem.
    """
    own = own_values(values)
    output = output_above(context)
    findings = Findings()
    look_at_machine(findings, os.environ)

    async def look() -> None:
        async with connected(where(given_above(context)), Output()) as session:
            await look_at(findings, session, own["monitor"])

    try:
        run_loop(look())
    except HeadraceError as error:
        told = explain(error)
        findings.problem("server", told.text, told.next_steps[0] if told.next_steps else "")
    output.show(findings.document(), *map(_text, findings.found), _end(findings))
    return 1 if findings.problems else 0


def _text(finding: Finding) -> str:
    mark = MARKS[finding.grade]
    if sys.stdout.isatty() and terminal() is not None and "NO_COLOR" not in os.environ:
        mark = click.style(mark, **_style(finding))
    text = f"{mark} {finding.what}: {printable(finding.text)}"
    return f"{text}\n    {finding.mend}" if finding.mend else text


def _style(finding: Finding) -> dict[str, Any]:
    *bold, colour = _COLOURS[finding.grade].split()
    return {"fg": colour, "bold": bool(bold)}


def _end(findings: Findings) -> str:
    count = findings.problems
    notes = sum(each.grade == "note" for each in findings.found)
    worth = f", and {notes} thing{'s' * (notes != 1)} worth knowing" if notes else ""
    if not count:
        return f"\nno problem found{worth}"
    return f"\n{count} problem{'s' * (count != 1)} found{worth}"


doctor = command_of(
    _examine, _examine, "doctor", (MONITOR,), [*output_options(), *connection_options()]
)
