"""``headrace object put``, ``del`` and ``seal``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from ..shared.asking import may_go_on
from ..shared.buckets import delete_bucket
from ..shared.errors import Failure
from ..shared.messages import HEADER, headers_of
from ..shared.names import OBJECT_NAMES, OBJECTS
from ..shared.progress import progress
from ..shared.units import bytes_text
from ..shared.verbs import Session, online
from .bucket import object_document

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
