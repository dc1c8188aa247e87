"""``headrace events``: what the server tells of itself, as sentences."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click

from ...client import Message
from ...documents import read_json
from ...errors import NoRespondersError
from ..shared.messages import Arrivals
from ..shared.output import printable
from ..shared.units import duration_text
from ..shared.verbs import Session, online

Event = Mapping[str, Any]


def _consumer(event: Event) -> str:
    return f"consumer {event.get('consumer')} of stream {event.get('stream')}"


def _done(event: Event) -> str:
    words = {"create": "was created", "delete": "was deleted", "modify": "was changed"}
    return words.get(str(event.get("action")), str(event.get("action")))


def _message(event: Event) -> str:
    tries = event.get("deliveries", 0)
    return f"message {event.get('stream_seq')} (delivered {tries} time{'s' * (tries != 1)})"


def _paused(event: Event) -> str:
    until = (
        f"is paused until {event.get('pause_until')}" if event.get("paused") else "delivers again"
    )
    return f"{_consumer(event)} {until}"


def _client(event: Event) -> str:
    client = event.get("client") or {}
    name = f"{client.get('name')} " if client.get("name") else ""
    user = f", user {client['user']}" if client.get("user") else ""
    return f"client {name}({client.get('host', '')}, id {client.get('id', '')}{user})"


def _unpinned(event: Event) -> str:
    return f"{_consumer(event)}: group {event.get('group')} lost its pinned client ({event.get('reason')})"


def _pinned(event: Event) -> str:
    return f"{_consumer(event)}: group {event.get('group')} has a pinned client, {event.get('pinned_id')}"


def _ended(event: Event) -> str:
    return (
        f"{_client(event)} disconnected from account {_account(event)}: {event.get('reason', '')}"
    )


def _account(event: Event) -> str:
    return str((event.get("client") or {}).get("acc", ""))


_SENTENCES: Final[dict[str, Callable[[Event], str]]] = {
    "jetstream.advisory.v1.stream_action": lambda e: f"stream {e.get('stream')} {_done(e)}",
    "jetstream.advisory.v1.consumer_action": lambda e: f"{_consumer(e)} {_done(e)}",
    "jetstream.advisory.v1.nak": lambda e: f"{_consumer(e)}: {_message(e)} was refused",
    "jetstream.advisory.v1.terminated": lambda e: (
        f"{_consumer(e)}: {_message(e)} is given up"
        + (f": {e['reason']}" if e.get("reason") else "")
    ),
    "jetstream.advisory.v1.max_deliver": lambda e: (
        f"{_consumer(e)}: {_message(e)} was tried as often as allowed"
    ),
    "jetstream.advisory.v1.consumer_pause": _paused,
    "jetstream.advisory.v1.consumer_group_pinned": _pinned,
    "jetstream.advisory.v1.consumer_group_unpinned": _unpinned,
    "jetstream.advisory.v1.stream_batch_abandoned": lambda e: (
        f"stream {e.get('stream')}: batch {e.get('batch')} came to nothing ({e.get('reason')})"
    ),
    "io.headrace.jetstream.advisory.v1.stream_copy_stopped": lambda e: (
        f"stream {e.get('stream')} takes nothing more of {e.get('origin')}: {e.get('reason')}"
    ),
    "jetstream.advisory.v1.stream_leader_elected": lambda e: (
        f"stream {e.get('stream')} is led by {e.get('leader')}"
    ),
    "jetstream.advisory.v1.consumer_leader_elected": lambda e: (
        f"{_consumer(e)} is led by {e.get('leader')}"
    ),
    "jetstream.advisory.v1.stream_quorum_lost": lambda e: (
        f"stream {e.get('stream')} lost its quorum"
    ),
    "jetstream.advisory.v1.consumer_quorum_lost": lambda e: f"{_consumer(e)} lost its quorum",
    "jetstream.advisory.v1.snapshot_create": lambda e: (
        f"a backup of stream {e.get('stream')} begins"
    ),
    "jetstream.advisory.v1.snapshot_complete": lambda e: (
        f"the backup of stream {e.get('stream')} is done"
    ),
    "jetstream.advisory.v1.restore_create": lambda e: f"restoring stream {e.get('stream')} begins",
    "jetstream.advisory.v1.restore_complete": lambda e: f"stream {e.get('stream')} is restored",
    "jetstream.metric.v1.consumer_ack": lambda e: (
        f"{_consumer(e)}: {_message(e)} acknowledged after {duration_text(e.get('ack_time', 0) / 1e9)}"
    ),
    "server.advisory.v1.client_connect": lambda e: (
        f"{_client(e)} connected to account {_account(e)}"
    ),
    "server.advisory.v1.client_disconnect": _ended,
}


def sentence(event: Event) -> str:
    """The event in a sentence; one of an unknown kind is shown by its kind."""
    kind = str(event.get("type", "")).removeprefix("io.nats.")
    known = _SENTENCES.get(kind)
    if known is not None:
        return known(event)
    names = ", ".join(
        f"{key} {event[key]}" for key in ("stream", "consumer", "account") if key in event
    )
    return f"{kind or 'event'}{': ' if names else ''}{names}"


@online(
    click.option("--stream", metavar="NAME", default="", help="only those of this stream"),
    click.option(
        "--subjects", metavar="SUBJECT", multiple=True, help="listen on this, too; repeatable"
    ),
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many events"
    ),
)
async def events(
    session: Session, stream: str, subjects: tuple[str, ...], count: int | None
) -> None:
    """Show what the server tells of itself, until Ctrl-C: what is created and deleted, refused messages,
    messages tried too often, pins, and, for users of the system account, who connects."""
    wanted = [*subjects, "$JS.EVENT.METRIC.>", "$JS.EVENT.ADVISORY.>"]
    if await _is_system(session):
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
        audit = document.get("type", "").endswith("api_audit")  # every call: `sub` shows them
        if audit or (stream and document.get("stream") != stream):
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
