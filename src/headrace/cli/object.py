"""``headrace object …``: buckets of objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from ..api.base import to_wire
from ..client import ObjectInfo, ObjectStoreStatus
from .shared.asking import ask, may_go_on
from .shared.buckets import SETTINGS, delete_bucket, options_of
from .shared.configuration import metadata_text
from .shared.errors import Failure
from .shared.messages import HEADER, headers_of, time_of
from .shared.names import OBJECT_NAMES, OBJECTS
from .shared.output import Sheet, Table, printable, progress, telling
from .shared.units import bytes_text, duration_text
from .shared.verbs import Session, online


@online(click.argument("bucket"), *SETTINGS)
async def add(session: Session, bucket: str, **given: Any) -> None:
    """Create a bucket of objects.

    \b
    headrace object add reports --ttl 90d
    """
    made = await session.js.create_object_store(bucket, **options_of(given))
    _show(session, await made.status())


@online(OBJECTS, click.argument("name", required=False, shell_complete=OBJECT_NAMES))
async def info(session: Session, bucket: str, name: str | None) -> None:
    """Show a bucket; with NAME, an object of it."""
    store = await session.js.object_store(bucket)
    if name is None:
        _show(session, await store.status())
        return
    found = await store.info(name)
    sheet = Sheet(f"Object {bucket} > {found.name}")
    leads = f"{found.link.bucket} > {found.link.name}" if found.link else ""
    sheet.section(
        "",
        [
            ("Description", found.description),
            ("Size", bytes_text(found.size)),
            ("Modified", time_of(found.modified_ns)),
            ("Chunks", f"{found.chunks:,}"),
            ("SHA-256", found.digest.hex()),
            ("Link to", leads),
            *((f"Header {key}", ", ".join(values)) for key, values in found.headers.items()),
            ("Metadata", ", ".join(f"{key}={value}" for key, value in found.metadata.items())),
        ],
    )
    session.output.show(object_document(found), sheet)


def _show(session: Session, status: ObjectStoreStatus) -> None:
    created = status.stream.created[:19].replace("T", " ")
    sheet = Sheet(f"Object bucket {status.bucket}, created {created} UTC")
    sheet.section(
        "",
        [
            ("Description", status.description),
            ("TTL", duration_text(status.ttl) if status.ttl else "none"),
            ("Maximum size", bytes_text(status.stream.config.max_bytes)),
            ("Storage", status.storage),
            ("Replicas", status.num_replicas),
            ("Compression", "yes" if status.compressed else ""),
            ("Sealed", "yes" if status.sealed else ""),
            ("Metadata", metadata_text(status.metadata)),
        ],
    )
    sheet.section("State", [("Size", bytes_text(status.size))])
    session.output.show(to_wire(status.stream), sheet)


def object_document(info: ObjectInfo) -> dict[str, Any]:
    """An object for programs."""
    found: dict[str, Any] = {
        "bucket": info.bucket,
        "name": info.name,
        "description": info.description,
        "size": info.size,
        "chunks": info.chunks,
        "sha256": info.digest.hex(),
        "modified": time_of(info.modified_ns),
        "deleted": info.deleted,
        "headers": {name: list(values) for name, values in info.headers.items()},
        "metadata": dict(info.metadata),
    }
    if info.link is not None:
        found["link"] = {"bucket": info.link.bucket, "name": info.link.name}
    return found


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


_READ_BYTES = 128 * 1024


@online(
    OBJECTS,
    click.argument("file", metavar="FILE"),
    click.option("--name", metavar="TEXT", default="", help="the object's name (that of the file)"),
    # Of the nats tool, which asks before it replaces an object.
    click.option("-f", "--force", is_flag=True, hidden=True, expose_value=False),
    click.option("--description", metavar="TEXT", default=""),
    HEADER,
)
async def put(
    session: Session, bucket: str, file: str, name: str, description: str, header: tuple[str, ...]
) -> None:
    """Store FILE as an object of its name, in place of what was there; - reads standard input."""
    store = await session.js.object_store(bucket)
    if file == "-" and not name:
        raise Failure("give what comes from standard input a --name")
    name = name or Path(file).name
    headers = headers_of(header)
    try:
        source, total = _opened(file)
        with source, progress(session.output, name, total, of_bytes=True) as advance:
            content = _pieces(source, advance)
            info = await store.put(name, content, description=description, headers=headers)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from None
    text = f"stored {bytes_text(info.size)} as {bucket} > {name}"
    session.output.show(object_document(info), text)


def _opened(file: str) -> tuple[BinaryIO, int | None]:
    """The file, and how large it is. Raises OSError."""
    if file == "-":
        return sys.stdin.buffer, None
    return Path(file).open("rb"), Path(file).stat().st_size


def _pieces(source: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    while piece := source.read(_READ_BYTES):
        yield piece
        advance(len(piece))


@online(
    OBJECTS,
    click.argument("name", required=False, shell_complete=OBJECT_NAMES),
    destroys=True,
    name="del",
)
async def delete(session: Session, bucket: str, name: str | None) -> None:
    """Delete an object; without NAME, the whole bucket."""
    if name is None:
        await delete_bucket(session.js, session.output, bucket, f"OBJ_{bucket}")
        return
    store = await session.js.object_store(bucket)
    info = await store.info(name)
    what = f"delete object {name} of bucket {bucket} ({bytes_text(info.size)})"
    if may_go_on(session.output, what):
        await store.delete(name)
        session.output.show({"bucket": bucket, "deleted": name}, f"deleted {bucket} > {name}")


@online(OBJECTS, destroys=True)
async def seal(session: Session, bucket: str) -> None:
    """Make a bucket read-only; nothing opens it again."""
    store = await session.js.object_store(bucket)
    if may_go_on(session.output, f"seal bucket {bucket} for good"):
        await store.seal()
        session.output.show({"sealed": bucket}, f"sealed bucket {bucket}")
