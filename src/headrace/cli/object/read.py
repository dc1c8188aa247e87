"""``headrace object ls``, ``get`` and ``watch``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..shared.asking import ask
from ..shared.errors import Failure
from ..shared.messages import time_of
from ..shared.names import OBJECT_NAMES, OBJECTS
from ..shared.output import Table, printable
from ..shared.progress import progress, telling
from ..shared.units import bytes_text
from ..shared.verbs import Session, online
from .bucket import object_document


@online(
    click.argument("bucket", required=False),
    click.option("-n", "--names", is_flag=True, help="names alone, one a line"),
)
async def ls(session: Session, bucket: str | None, names: bool) -> None:
    """List the buckets; with BUCKET, its objects."""
    if bucket is None:
        await _buckets(session, names)
        return
    found = sorted(await (await session.js.object_store(bucket)).list(), key=lambda each: each.name)
    if names:
        listed = [each.name for each in found]
        session.output.show(listed, *map(printable, listed))
        return
    table = Table(
        ("NAME", "DESCRIPTION", "SIZE", "MODIFIED"),
        right=frozenset(("SIZE",)),
        empty=f"no objects; `headrace object put {bucket} FILE` stores one",
    )
    for each in found:
        size = "link" if each.link else bytes_text(each.size)
        table.add(each.name, each.description, size, time_of(each.modified_ns))
    session.output.show([object_document(each) for each in found], table)


async def _buckets(session: Session, names: bool) -> None:
    found = sorted(
        [each async for each in session.js.object_store_statuses()], key=lambda each: each.bucket
    )
    if names:
        listed = [each.bucket for each in found]
        session.output.show(listed, *listed)
        return
    table = Table(
        ("BUCKET", "DESCRIPTION", "SIZE", "STORAGE"),
        right=frozenset(("SIZE",)),
        empty="no buckets; `headrace object add NAME` creates one",
    )
    for each in found:
        table.add(each.bucket, each.description, bytes_text(each.size), each.storage)
    rows = [
        {"bucket": each.bucket, "description": each.description, "bytes": each.size}
        for each in found
    ]
    session.output.show(rows, table)


@online(
    OBJECTS,
    click.argument("name", shell_complete=OBJECT_NAMES),
    click.option(
        "-O", "--output", "target", metavar="FILE", default=None, help="(NAME); - prints it"
    ),
    click.option("-f", "--force", is_flag=True, help="replace the file without asking"),
)
async def get(session: Session, bucket: str, name: str, target: str | None, force: bool) -> None:
    """Write an object to a file of its name, once its checksum was found right."""
    store = await session.js.object_store(bucket)
    info = await store.info(name)
    if target == "-":
        async with store.open(name) as reader:
            async for chunk in reader:
                sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    path = _target(target, name, force=force)
    try:
        with progress(session.output, name, info.size, of_bytes=True) as advance:
            await store.get_file(name, path, progress=telling(advance))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from None
    document = {**object_document(info), "file": str(path)}
    session.output.show(document, f"wrote {bytes_text(info.size)} to {path}")


@online(
    OBJECTS,
    click.option("--new", is_flag=True, help="only what changes from now on"),
    click.option(
        "--count", type=click.IntRange(1), default=None, help="end after this many changes"
    ),
)
async def watch(session: Session, bucket: str, new: bool, count: int | None) -> None:
    """Show what is in the bucket, and changes as they come, until Ctrl-C."""
    store = await session.js.object_store(bucket)
    shown = 0
    async with await store.watch(updates_only=new) as watching:
        session.output.note(f"watching bucket {bucket}; Ctrl-C ends it")
        async for info in watching:
            what = "DEL" if info.deleted else "PUT"
            size = "" if info.deleted else f": {bytes_text(info.size)}"
            text = f"[{time_of(info.modified_ns)}] {what} {bucket} > {info.name}{size}"
            session.output.line(object_document(info), printable(text))
            sys.stdout.flush()
            shown += 1
            if shown == count:
                return


def _target(given: str | None, name: str, *, force: bool) -> Path:
    """The file to write. Raises Failure if it is there and is not to be replaced."""
    own = Path(name).name
    path = Path(given if given is not None else own)
    if path.is_dir():
        path = path / own
    if path.exists() and not force:
        ask(f"Really replace {path}?")
    return path
