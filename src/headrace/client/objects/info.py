"""What is known of an object: its description as the bucket keeps it, its errors, its subjects.

The form is the one every NATS client uses (object stores over JetStream): a bucket is a stream
``OBJ_<bucket>``; an object is a run of messages on ``$O.<bucket>.C.<id>``, and a JSON document on
``$O.<bucket>.M.<name in base64>`` that says what they are.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypedDict

from ...api.base import Document, DocumentError, decode, encode
from ...api.streams import Placement, StorageKind, StreamConfig, StreamInfo
from ...errors import ConfigurationError, HeadraceError
from ...field_docs import described
from ..jetstream.configuration import bucket_name, bucket_stream

CHUNK_BYTES_DEFAULT: Final = 128 * 1024
NAME_BYTES_MAX: Final = 2048  # in UTF-8: its subject must fit into a line of the protocol


class ObjectNotFoundError(HeadraceError, KeyError):
    """The bucket has no object of this name, or it was deleted.

    Attributes:
        name: which.
    """

    def __init__(self, bucket: str, name: str) -> None:
        super().__init__(f"bucket {bucket!r} has no object {name!r}")
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show its repr


class ObjectExistsError(HeadraceError):
    """There is an object of this name already, and it is not to be replaced."""


class ObjectDamagedError(HeadraceError):
    """What was read is not what was put: chunks are missing, or size or digest differ."""


class ObjectLinkError(HeadraceError):
    """A link leads to a whole bucket, in a circle, or cannot be made to what was given."""


@dataclass(frozen=True, slots=True)
class ObjectLink:
    """Where a link leads: to an object, or with an empty ``name`` to a whole bucket."""

    bucket: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object.

    Attributes:
        bucket, name: where it is, and what it is called; any text.
        description, headers, metadata: what its owner says of it; a header may have several values.
        size: bytes; ``chunks``: in how many messages.
        digest: SHA-256 of the content, or b"" for links and deleted objects.
        chunk_size: the size of a chunk in bytes, or 0 where the writer did not say.
        link: where it leads, if it is a link.
        deleted: whether this is only the mark of a deletion.
        modified_ns: when it was put or changed, in nanoseconds since the Unix epoch.
        nuid: the identity of the content; another put of the same name has another one.
        revision: the stream sequence of this description.
    """

    bucket: str
    name: str
    description: str = ""
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    chunks: int = 0
    digest: bytes = b""
    chunk_size: int = 0
    link: ObjectLink | None = None
    deleted: bool = False
    modified_ns: int = 0
    nuid: str = ""
    revision: int = 0


@dataclass(frozen=True, slots=True)
class ObjectStoreStatus:
    """A bucket: its settings and how much is in it.

    Attributes:
        ttl: seconds an object is kept, 0: for good.
        size: bytes in the stream behind it, descriptions and overhead included.
        sealed: whether nothing can be changed any more.
        stream: everything the server says of the stream.
    """

    bucket: str
    description: str
    ttl: float
    storage: str
    num_replicas: int
    sealed: bool
    compressed: bool
    metadata: Mapping[str, str]
    size: int
    stream: StreamInfo

    @classmethod
    def of(cls, bucket: str, stream: StreamInfo) -> ObjectStoreStatus:
        """What the stream of a bucket says of it."""
        config = stream.config
        return cls(
            bucket=bucket,
            description=config.description,
            ttl=config.max_age,
            storage=config.storage,
            num_replicas=config.num_replicas,
            sealed=config.sealed,
            compressed=config.compression != "none",
            metadata=config.metadata,
            size=stream.state.bytes,
            stream=stream,
        )


# Names


def object_stream_name(bucket: str) -> str:
    """The name of the stream behind a bucket. Raises ConfigurationError for a bad bucket name."""
    return f"OBJ_{bucket_name(bucket)}"


def chunk_subject(bucket: str, nuid: str) -> str:
    """Where the content of an object is."""
    return f"$O.{bucket}.C.{nuid}"


def meta_subject(bucket: str, name: str) -> str:
    """Where the description of an object is. Raises ConfigurationError for a name out of limits."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError("an object needs a name; accepted is any text that is not empty")
    encoded = name.encode()
    if len(encoded) > NAME_BYTES_MAX:
        raise ConfigurationError(
            f"an object's name has {len(encoded)} bytes; accepted: up to {NAME_BYTES_MAX}"
        )
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(encoded).decode()}"


def header_values(headers: Mapping[str, str | Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    """Headers as they are stored: a list of values for each name. Raises ConfigurationError for what is no
    text: nobody could read a description that has it."""
    given = {} if headers is None else headers
    try:
        values = {
            name: (value,) if isinstance(value, str) else tuple(value)
            for name, value in given.items()
        }
        fits = all(isinstance(text, str) for name in values for text in (name, *values[name]))
    except (TypeError, AttributeError):
        fits = False
    if not fits:
        raise ConfigurationError(
            f"headers are {headers!r:.200}; accepted is a mapping from text to text, or to a list of texts"
        )
    return values


def text_map(what: str, values: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of metadata. Raises ConfigurationError for what is no text, as ``header_values``."""
    given = dict(values or {})
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigurationError(
                f"{what} has {name!r}: {value!r}; accepted is a mapping from text to text"
            )
    return given


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


@described
class ObjectStoreOptions(TypedDict, total=False):
    """The settings of a bucket of objects; all may be left out."""

    description: str
    """For people; "" by default."""

    ttl: float | timedelta
    """Seconds after which an object is removed; 0, the default: never."""

    max_bytes: int
    """Bytes of all objects together; -1, the default: no limit. A put beyond it fails."""

    storage: StorageKind
    """``"file"``, the default, or ``"memory"``."""

    num_replicas: int
    """How many servers of a cluster keep it; 1 by default."""

    placement: Placement
    """Where a cluster should put it; anywhere by default."""

    compression: bool
    """Whether the server compresses it on disk; False by default."""

    metadata: Mapping[str, str]
    """Names and values for people and programs; empty by default."""


def object_bucket_config(bucket: str, options: ObjectStoreOptions) -> StreamConfig:
    """The stream that stands behind a bucket, as every NATS client makes it.

    Raises ConfigurationError for a name or an option that is not accepted.
    """
    return bucket_stream(
        "an object store",
        ObjectStoreOptions.__annotations__,
        options,
        name=object_stream_name(bucket),
        allow_direct=True,
        subjects=(f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"),
    )
