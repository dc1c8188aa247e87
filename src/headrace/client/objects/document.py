"""The JSON document by which a bucket describes an object, as every NATS client writes and reads it."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from ...api.base import Document, DocumentError, decode, encode
from .info import ObjectDamagedError, ObjectInfo, ObjectLink

_DIGEST: Final = "SHA-256="


class _Link(Document, frozen=True, kw_only=True):
    always = ("bucket",)

    bucket: str = ""
    name: str = ""


class _Options(Document, frozen=True, kw_only=True):
    link: _Link | None = None
    max_chunk_size: int = 0


class _Meta(Document, frozen=True, kw_only=True):
    """The time of change is not in it: that is the message's own."""

    always = ("name", "bucket", "nuid", "size", "chunks")

    name: str = ""
    description: str = ""
    headers: dict[str, str | tuple[str, ...]] = {}  # noqa: RUF012 - msgspec copies it
    metadata: dict[str, str] = {}  # noqa: RUF012 - this one, too
    options: _Options | None = None
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False


def encode_info(info: ObjectInfo) -> bytes:
    """The document that describes an object."""
    link = info.link
    options = _Options(
        link=_Link(bucket=link.bucket, name=link.name) if link else None,
        max_chunk_size=info.chunk_size,
    )
    return encode(
        _Meta(
            name=info.name,
            description=info.description,
            headers={name: tuple(values) for name, values in info.headers.items()},
            metadata=dict(info.metadata),
            options=options if link or info.chunk_size else None,
            bucket=info.bucket,
            nuid=info.nuid,
            size=info.size,
            chunks=info.chunks,
            digest=_DIGEST + base64.urlsafe_b64encode(info.digest).decode() if info.digest else "",
            deleted=info.deleted,
        )
    )


def decode_info(bucket: str, document: bytes, revision: int, modified_ns: int) -> ObjectInfo:
    """Read the document that describes an object.

    Raises ObjectDamagedError: it is not such a document.
    """
    try:
        meta = decode(document, _Meta)
    except DocumentError as error:
        raise ObjectDamagedError(
            f"bucket {bucket!r}: message {revision} does not describe an object: {error}"
        ) from None
    options = meta.options or _Options()
    link = options.link
    return ObjectInfo(
        bucket=bucket,
        name=meta.name,
        description=meta.description,
        headers={
            name: (values,) if isinstance(values, str) else values
            for name, values in meta.headers.items()
        },
        metadata=meta.metadata,
        size=meta.size,
        chunks=meta.chunks,
        digest=_digest(bucket, meta),
        chunk_size=options.max_chunk_size,
        link=ObjectLink(link.bucket, link.name) if link else None,
        deleted=meta.deleted,
        modified_ns=modified_ns,
        nuid=meta.nuid,
        revision=revision,
    )


def _digest(bucket: str, meta: _Meta) -> bytes:
    """The digest as bytes; with or without padding, in either alphabet."""
    if not meta.digest:
        return b""
    kind, _, text = meta.digest.partition("=")
    try:
        if kind.upper() != "SHA-256":
            raise ValueError(f"kind {kind!r} is not SHA-256")
        text = text.rstrip("=").replace("+", "-").replace("/", "_")
        digest = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if len(digest) != hashlib.sha256().digest_size:
            raise ValueError(f"{len(digest)} bytes")
    except (ValueError, binascii.Error) as error:
        raise ObjectDamagedError(
            f"object {meta.name!r} of bucket {bucket!r} has the digest {meta.digest!r}: {error}"
        ) from None
    return digest
