"""``headrace stream ls``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ...api.base import to_wire
from ...api.streams import StreamInfo
from ..shared.output import Table
from ..shared.units import ago, bytes_text, count_text
from ..shared.verbs import Session, online

_BUCKETS = ("KV_", "OBJ_")


@online(
    click.option("--subject", metavar="PATTERN", default="", help="only those with this subject"),
    click.option("-n", "--names", is_flag=True, help="names alone, one a line"),
    click.option("-a", "--all", "everything", is_flag=True, help="buckets' streams, too"),
)
async def ls(session: Session, subject: str, names: bool, everything: bool) -> None:
    """List the streams: what each holds, and when it got its last message."""
    now = datetime.now(UTC)
    found = [
        each
        async for each in session.js.streams(subject=subject)
        if everything or not each.config.name.startswith(_BUCKETS)
    ]
    found.sort(key=lambda each: each.config.name)
    if names:
        listed = [each.config.name for each in found]
        session.output.show(listed, *listed)
        return
    none = "no streams; `headrace stream create NAME --subjects 'name.>'` creates one"
    session.output.show([to_wire(each) for each in found], stream_table(found, now, none))


def stream_table(found: list[StreamInfo], now: datetime, empty: str) -> Table:
    """Streams for people; ``empty`` is said if there are none."""
    table = Table(
        ("NAME", "DESCRIPTION", "CREATED", "MESSAGES", "SIZE", "LAST MESSAGE"),
        right=frozenset(("MESSAGES", "SIZE")),
        empty=empty,
    )
    for each in found:
        table.add(
            each.config.name,
            each.config.description,
            f"{each.created[:19].replace('T', ' ')}",
            count_text(each.state.messages),
            bytes_text(each.state.bytes),
            ago(each.state.last_ts, now),
        )
    return table
