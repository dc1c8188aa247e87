"""``headrace stream ls`` and ``headrace stream report``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ...api.base import to_wire
from ..shared.output import Table
from ..shared.units import ago, bytes_text, count_text, duration_text
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
    table = Table(
        ("NAME", "DESCRIPTION", "CREATED", "MESSAGES", "SIZE", "LAST MESSAGE"),
        right=frozenset(("MESSAGES", "SIZE")),
        empty="no streams; `headrace stream create NAME --subjects 'name.>'` creates one",
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
    session.output.show([to_wire(each) for each in found], table)


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
    copies = Table(("STREAM", "KIND", "FROM", "LAG", "ACTIVE"), right=frozenset(("LAG",)))
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
