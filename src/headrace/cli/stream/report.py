"""``headrace stream report``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ..shared.output import Table
from ..shared.units import ago, bytes_text, count_text, duration_text
from ..shared.verbs import Session, online

_ORDERS = {
    "name": lambda each: each.config.name,
    "messages": lambda each: -each.state.messages,
    "bytes": lambda each: -each.state.bytes,
    "consumers": lambda each: -each.state.consumer_count,
}


@online(
    click.option("--by", type=click.Choice(list(_ORDERS)), default="bytes", help="sort by (bytes)"),
    click.option("--subject", metavar="PATTERN", default="", help="only those with this subject"),
)
async def report(session: Session, by: str, subject: str) -> None:
    """Say who holds what: messages, bytes, consumers, what was deleted, how far copies are behind."""
    now = datetime.now(UTC)
    found = [each async for each in session.js.streams(subject=subject)]
    found.sort(key=_ORDERS[by])
    numbers = frozenset(("CONSUMERS", "MESSAGES", "BYTES", "DELETED", "REPLICAS"))
    table = Table(
        ("STREAM", "STORAGE", "RETENTION", "CONSUMERS", "MESSAGES", "BYTES", "DELETED", "REPLICAS",
         "LAST MESSAGE"),
        right=numbers,
        empty="no streams; `headrace stream create NAME --subjects 'name.>'` creates one",
    )  # fmt: skip
    copies = Table(("STREAM", "KIND", "FROM", "BEHIND", "ACTIVE"), right=frozenset(("BEHIND",)))
    rows = []
    for each in found:
        config, state = each.config, each.state
        table.add(
            config.name,
            config.storage,
            config.retention,
            state.consumer_count,
            count_text(state.messages),
            bytes_text(state.bytes),
            count_text(state.num_deleted),
            config.num_replicas,
            ago(state.last_ts, now),
        )
        for kind, origin in [
            *([("mirror", each.mirror)] if each.mirror else []),
            *(("source", source) for source in each.sources),
        ]:
            assert origin is not None
            copies.add(
                config.name, kind, origin.name, f"{origin.lag:,}", duration_text(origin.active)
            )
        rows.append(
            {
                "stream": config.name,
                "storage": config.storage,
                "retention": config.retention,
                "consumers": state.consumer_count,
                "messages": state.messages,
                "bytes": state.bytes,
                "deleted": state.num_deleted,
                "replicas": config.num_replicas,
                "last_ts": state.last_ts,
            }
        )
    tables: list[str | Table] = ["", copies] if copies.rows else []
    session.output.show(rows, table, *tables)
