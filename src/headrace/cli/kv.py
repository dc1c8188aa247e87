"""``headrace kv …``: buckets of keys and values."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..api.base import to_wire
from ..client import Entry, KeyValueStatus
from ..wire.headers import Headers
from .shared.asking import may_go_on
from .shared.buckets import SETTINGS, delete_bucket, options_of
from .shared.configuration import metadata_text
from .shared.messages import document, payload_of, payload_text, time_of
from .shared.names import BUCKET, KEYS
from .shared.output import Sheet, Table, printable
from .shared.units import DURATION, SIZE, bytes_text, count_text, duration_text
from .shared.verbs import Session, online


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
    _show_bucket(session, await made.status())


@online(BUCKET)
async def info(session: Session, bucket: str) -> None:
    """Show a bucket: settings, and how much is in it."""
    _show_bucket(session, await (await session.js.key_value(bucket)).status())


def _show_bucket(session: Session, status: KeyValueStatus) -> None:
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


_CUT = 60


@online(
    click.argument("bucket", required=False),
    click.argument("patterns", nargs=-1, metavar="[PATTERN]…"),
    click.option("-n", "--names", is_flag=True, help="names alone, one a line"),
)
async def ls(session: Session, bucket: str | None, patterns: tuple[str, ...], names: bool) -> None:
    """List the buckets; with BUCKET, its keys."""
    if bucket is None:
        await _buckets(session, names)
        return
    found = await session.js.key_value(bucket)
    keys = sorted(await found.keys(*patterns))
    none = [] if names else [f"no keys; `headrace kv put {bucket} KEY VALUE` sets one"]
    session.output.show(keys, *(map(printable, keys) if keys else none))


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


_KEY = click.argument("key", shell_complete=KEYS)
_VALUE = click.argument("value", required=False)
_TTL = click.option(
    "--ttl", type=DURATION, default=0.0, help="remove it after this (needs --marker-ttl)"
)


@online(BUCKET, _KEY, _VALUE, _TTL)
async def put(session: Session, bucket: str, key: str, value: str | None, ttl: float) -> None:
    """Set KEY to VALUE, or to what standard input has, whatever it was."""
    data = payload_of(value)
    revision = await (await session.js.key_value(bucket)).put(key, data, ttl=ttl)
    _show_revision(session, bucket, key, revision)


@online(BUCKET, _KEY, _VALUE, _TTL)
async def create(session: Session, bucket: str, key: str, value: str | None, ttl: float) -> None:
    """Set KEY to VALUE if it has none."""
    data = payload_of(value)
    revision = await (await session.js.key_value(bucket)).create(key, data, ttl=ttl)
    _show_revision(session, bucket, key, revision)


@online(BUCKET, _KEY, click.argument("value"), click.argument("revision", type=click.IntRange(0)))
async def update(session: Session, bucket: str, key: str, value: str, revision: int) -> None:
    """Set KEY to VALUE if REVISION is its newest; - reads standard input."""
    data = payload_of(value)
    now = await (await session.js.key_value(bucket)).update(key, data, revision)
    _show_revision(session, bucket, key, now)


@online(BUCKET, _KEY, click.argument("revision", type=click.IntRange(1)), destroys=True)
async def revert(session: Session, bucket: str, key: str, revision: int) -> None:
    """Set KEY to the value of an earlier REVISION."""
    found = await session.js.key_value(bucket)
    now, then = await found.get(key), await found.get(key, revision=revision)
    what = f"set {bucket} > {key} from revision {now.revision} to the value of revision {revision}"
    if may_go_on(session.output, what):
        new = await found.update(key, then.value, now.revision)
        _show_revision(session, bucket, key, new)


@online(
    BUCKET, click.argument("key", required=False, shell_complete=KEYS), destroys=True, name="del"
)
async def delete(session: Session, bucket: str, key: str | None) -> None:
    """Delete KEY, its history stays; without KEY, the whole bucket."""
    if key is None:
        await delete_bucket(session.js, session.output, bucket, f"KV_{bucket}")
        return
    found = await session.js.key_value(bucket)
    entry = await found.get(key)
    if may_go_on(session.output, f"delete key {key} of bucket {bucket}"):
        await found.delete(key, revision=entry.revision)
        session.output.show({"bucket": bucket, "deleted": key}, f"deleted {bucket} > {key}")


@online(BUCKET, _KEY, destroys=True)
async def purge(session: Session, bucket: str, key: str) -> None:
    """Delete KEY with its history."""
    found = await session.js.key_value(bucket)
    what = f"delete key {key} of bucket {bucket} with its history"
    if may_go_on(session.output, what):
        await found.purge(key)
        session.output.show({"bucket": bucket, "purged": key}, f"purged {bucket} > {key}")


def _show_revision(session: Session, bucket: str, key: str, revision: int) -> None:
    document = {"bucket": bucket, "key": key, "revision": revision}
    session.output.show(document, f"{bucket} > {key} is at revision {revision}")
