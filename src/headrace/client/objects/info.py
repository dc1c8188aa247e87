"""What is known of an object: its description as the bucket keeps it, its errors, its subjects.

The form is the one every NATS client uses (object stores over JetStream): a bucket is a stream
``OBJ_<bucket>``; an object is a run of messages on ``$O.<bucket>.C.<id>``, and a JSON document on
``$O.<bucket>.M.<name in base64>`` that says what they are.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...api.streams import StreamInfo
from ...errors import ConfigurationError, HeadraceError
from ..jetstream.configuration import bucket_name

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
