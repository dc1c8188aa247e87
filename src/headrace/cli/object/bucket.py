"""``headrace object add`` and ``info``."""

from __future__ import annotations

from typing import Any

import click

from ...api.base import to_wire
from ...client import ObjectInfo, ObjectStoreStatus
from ..shared.buckets import SETTINGS, options_of
from ..shared.configuration import metadata_text
from ..shared.messages import time_of
from ..shared.names import OBJECT_NAMES, OBJECTS
from ..shared.output import Sheet
from ..shared.units import bytes_text, duration_text
from ..shared.verbs import Session, online


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
