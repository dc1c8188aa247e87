"""``headrace kv ls``, ``get``, ``history`` and ``watch``."""

from __future__ import annotations

import sys
from typing import Any

import click

from ...client import Entry
from ...wire.headers import Headers
from ..shared.messages import document, payload_text, time_of
from ..shared.names import BUCKET, KEYS
from ..shared.output import Table, printable
from ..shared.units import bytes_text, duration_text
from ..shared.verbs import Session, online

_CUT = 60


@online(
    click.argument("bucket", required=False),
    click.argument("patterns", nargs=-1, metavar="[PATTERN]…"),
    click.option("-n", "--names", is_flag=True, help="names alone, one a line"),
    click.option("-v", "--verbose", is_flag=True, help="with values"),
)
async def ls(
    session: Session, bucket: str | None, patterns: tuple[str, ...], names: bool, verbose: bool
) -> None:
    """List the buckets; with BUCKET, its keys."""
    if bucket is None:
        await _buckets(session, names)
        return
    found = await session.js.key_value(bucket)
    if not verbose:
        keys = sorted(await found.keys(*patterns))
        none = [] if names else [f"no keys; `headrace kv put {bucket} KEY VALUE` sets one"]
        session.output.show(keys, *(map(printable, keys) if keys else none))
        return
    table = Table(("KEY", "REVISION", "CREATED", "VALUE"), right=frozenset(("REVISION",)))
    async with await found.watch(*patterns) as watching:
        newest = {entry.key: entry async for entry in watching.initial()}
    entries = [entry for entry in newest.values() if entry.operation == "put"]
    for entry in entries:
        table.add(entry.key, entry.revision, time_of(entry.created_ns), _cut(entry.value))
    table.empty = "no keys"
    session.output.show([entry_document(entry) for entry in entries], table)


async def _buckets(session: Session, names: bool) -> None:
    found = sorted(
        [each async for each in session.js.key_value_statuses()], key=lambda each: each.bucket
    )
    if names:
        listed = [each.bucket for each in found]
        session.output.show(listed, *listed)
        return
    table = Table(
        ("BUCKET", "DESCRIPTION", "ENTRIES", "SIZE", "HISTORY", "TTL"),
        right=frozenset(("ENTRIES", "SIZE", "HISTORY")),
        empty="no buckets; `headrace kv add NAME` creates one",
    )
    rows = []
    for each in found:
        ttl = duration_text(each.ttl) if each.ttl else "none"
        cells = (f"{each.values:,}", bytes_text(each.size), each.history, ttl)
        table.add(each.bucket, each.description, *cells)
        rows.append(
            {
                "bucket": each.bucket,
                "description": each.description,
                "values": each.values,
                "bytes": each.size,
                "history": each.history,
                "ttl": each.ttl,
            }
        )
    session.output.show(rows, table)


@online(
    BUCKET,
    click.argument("key", shell_complete=KEYS),
    click.option("--revision", type=click.IntRange(0), default=0, help="an earlier one"),
    click.option("-r", "--raw", is_flag=True, help="the value alone"),
)
async def get(session: Session, bucket: str, key: str, revision: int, raw: bool) -> None:
    """Show the value of KEY."""
    entry = await (await session.js.key_value(bucket)).get(key, revision=revision)
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(entry.value)
        return
    first = f"{bucket} > {key} revision: {entry.revision} created: {time_of(entry.created_ns)}"
    session.output.show(entry_document(entry), f"{first}\n\n{payload_text(entry.value)}")


@online(BUCKET, click.argument("key", shell_complete=KEYS))
async def history(session: Session, bucket: str, key: str) -> None:
    """Show the revisions of KEY that the bucket keeps, oldest first."""
    entries = await (await session.js.key_value(bucket)).history(key)
    table = Table(
        ("REVISION", "OPERATION", "CREATED", "VALUE"),
        right=frozenset(("REVISION",)),
        empty=f"bucket {bucket} knows nothing of key {key!r}",
    )
    for entry in entries:
        table.add(entry.revision, entry.operation, time_of(entry.created_ns), _cut(entry.value))
    session.output.show([entry_document(entry) for entry in entries], table)


@online(
    BUCKET,
    click.argument("patterns", nargs=-1, metavar="[PATTERN]…"),
    click.option("--history", "with_history", is_flag=True, help="begin with every revision kept"),
    click.option("--new", is_flag=True, help="only what changes from now on"),
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many changes"
    ),
)
async def watch(
    session: Session,
    bucket: str,
    patterns: tuple[str, ...],
    with_history: bool,
    new: bool,
    count: int | None,
) -> None:
    """Show what is in the bucket, and changes as they come, until Ctrl-C."""
    found = await session.js.key_value(bucket)
    shown = 0
    async with await found.watch(*patterns, history=with_history, updates_only=new) as watching:
        session.output.note(f"watching bucket {bucket}; Ctrl-C ends it")
        async for entry in watching:
            operation = entry.operation.upper()
            value = f": {_cut(entry.value)}" if entry.operation == "put" else ""
            text = f"[{time_of(entry.created_ns)}] {operation} {bucket} > {entry.key}{value}"
            session.output.line(entry_document(entry), printable(text))
            sys.stdout.flush()
            shown += 1
            if shown == count:
                return


def entry_document(entry: Entry) -> dict[str, Any]:
    """An entry for programs."""
    found = document(
        "",
        entry.value,
        Headers(),
        revision=entry.revision,
        operation=entry.operation,
        created=time_of(entry.created_ns),
    )
    del found["subject"]
    for name in ("payload", "payload_base64"):
        if name in found:
            found[name.replace("payload", "value")] = found.pop(name)
    return {"bucket": entry.bucket, "key": entry.key, **found}


def _cut(value: bytes) -> str:
    text = payload_text(value).replace("\n", "↵")
    return text if len(text) <= _CUT else f"{text[: _CUT - 1]}…"
