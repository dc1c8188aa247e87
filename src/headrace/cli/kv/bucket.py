"""``headrace kv add``, ``info`` and ``compact``."""

from __future__ import annotations

from typing import Any

import click

from ...api.base import to_wire
from ...client import KeyValueStatus
from ..shared.asking import may_go_on
from ..shared.buckets import SETTINGS, options_of
from ..shared.configuration import metadata_text
from ..shared.names import BUCKET
from ..shared.output import Sheet
from ..shared.units import DURATION, SIZE, bytes_text, count_text, duration_text
from ..shared.verbs import Session, online


@online(
    click.argument("bucket"),
    click.option(
        "--history", type=click.IntRange(1, 64), default=None, help="revisions of each key (1)"
    ),
    click.option("--max-value-size", type=SIZE, default=None, help="the largest value"),
    click.option("--marker-ttl", type=DURATION, default=None, help="allow a TTL for single keys"),
    *SETTINGS,
)
async def add(
    session: Session,
    bucket: str,
    history: int | None,
    max_value_size: int | None,
    marker_ttl: float | None,
    **given: Any,
) -> None:
    """Create a bucket of keys.

    \b
    headrace kv add settings --history 5
    headrace kv add sessions --ttl 8h --storage memory
    """
    options = options_of(given)
    more = {"history": history, "max_value_size": max_value_size, "marker_ttl": marker_ttl}
    options |= {name: value for name, value in more.items() if value is not None}
    made = await session.js.create_key_value(bucket, **options)
    _show(session, await made.status())


@online(BUCKET)
async def info(session: Session, bucket: str) -> None:
    """Show a bucket: settings, and how much is in it."""
    _show(session, await (await session.js.key_value(bucket)).status())


def _show(session: Session, status: KeyValueStatus) -> None:
    config = status.stream.config
    created = status.stream.created[:19].replace("T", " ")
    sheet = Sheet(f"Key-value bucket {status.bucket}, created {created} UTC")
    sheet.section(
        "",
        [
            ("Description", status.description),
            ("History", status.history),
            ("TTL", duration_text(status.ttl) if status.ttl else "none"),
            ("Marker TTL", duration_text(status.marker_ttl) if status.marker_ttl else ""),
            ("Maximum value size", bytes_text(config.max_msg_size)),
            ("Maximum bucket size", bytes_text(config.max_bytes)),
            ("Storage", status.storage),
            ("Replicas", status.num_replicas),
            ("Compression", "yes" if status.compressed else ""),
            ("Mirror of", config.mirror.name.removeprefix("KV_") if config.mirror else ""),
            ("Metadata", metadata_text(status.metadata)),
        ],
    )
    rows = [("Entries", count_text(status.values)), ("Size", bytes_text(status.size))]
    sheet.section("State", rows)
    session.output.show(to_wire(status.stream), sheet)


@online(
    BUCKET,
    click.option("--older-than", type=DURATION, default=1800.0, help="forget the marks, too (30m)"),
    destroys=True,
)
async def compact(session: Session, bucket: str, older_than: float) -> None:
    """Forget the history of every key that was deleted; values stay."""
    found = await session.js.key_value(bucket)
    what = f"forget the history of what was deleted in bucket {bucket}"
    if may_go_on(session.output, what):
        count = await found.purge_deletes(older_than=older_than)
        session.output.show({"bucket": bucket, "keys": count}, f"forgot {count:,} deleted keys")
