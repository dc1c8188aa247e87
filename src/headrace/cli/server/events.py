"""``headrace events``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from ...client import Message
from ...documents import read_json
from ...errors import NoRespondersError
from ..shared.arrivals import Arrivals
from ..shared.output import printable
from ..shared.verbs import Session, online
from .event_text import sentence


@online(
    click.option("--js-metric/--no-js-metric", default=True, help="sampled acknowledgements (yes)"),
    click.option(
        "--js-advisory/--no-js-advisory", default=True, help="streams and consumers (yes)"
    ),
    click.option("--api/--no-api", default=False, help="every call of the JetStream API"),
    click.option(
        "--srv-advisory/--no-srv-advisory", default=True, help="connections, where allowed (yes)"
    ),
    click.option("--stream", metavar="NAME", default="", help="only those of this stream"),
    click.option(
        "--subjects", metavar="SUBJECT", multiple=True, help="listen on this, too; repeatable"
    ),
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many events"
    ),
)
async def events(
    session: Session,
    js_metric: bool,
    js_advisory: bool,
    api: bool,
    srv_advisory: bool,
    stream: str,
    subjects: tuple[str, ...],
    count: int | None,
) -> None:
    """Show what the server tells of itself, until Ctrl-C: what is created and deleted, refused messages,
    messages tried too often, pins, and, for users of the system account, who connects."""
    wanted = [*subjects]
    if js_metric:
        wanted.append("$JS.EVENT.METRIC.>")
    if js_advisory:
        wanted.append("$JS.EVENT.ADVISORY.>")
    if srv_advisory and await _is_system(session):
        wanted += ["$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT"]
    arrivals = Arrivals()
    for subject in wanted:
        await session.connection.subscribe(subject, callback=arrivals.put)
    await session.connection.flush()
    session.output.note("listening for events; Ctrl-C ends it")
    shown = 0
    while count is None or shown < count:
        message = await anext(arrivals)
        document = _read(message)
        audit = document.get("type", "").endswith("api_audit")
        if (audit and not api) or (stream and document.get("stream") != stream):
            continue
        when = str(document.get("timestamp") or datetime.now(UTC).isoformat())[:19].replace(
            "T", " "
        )
        session.output.line(document, printable(f"[{when}] {sentence(document)}"))
        sys.stdout.flush()
        shown += 1
    if arrivals.dropped:
        session.output.note(f"{arrivals.dropped:,} events came too fast to be shown, and are lost")


async def _is_system(session: Session) -> bool:
    try:
        await session.connection.request("$SYS.REQ.SERVER.PING.IDZ", timeout=1.0)
    except (NoRespondersError, TimeoutError):
        return False
    return True


def _read(message: Message) -> dict[str, Any]:
    try:
        found = read_json(message.payload)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    return {"type": message.subject, "payload": message.payload.decode(errors="replace")}
