"""The settings of a key-value bucket, and the stream that stands behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypedDict

import msgspec

from ...api.streams import (
    Placement,
    Republish,
    StorageKind,
    StreamConfig,
    StreamInfo,
    StreamSource,
    SubjectTransformConfig,
)
from ...errors import ConfigurationError
from ...field_docs import described
from ..jetstream.configuration import (
    BUCKET_FIELDS,
    bucket_name,
    bucket_stream,
    duplicate_window,
    seconds,
)

HISTORY_MAX: Final = 64
STREAM_PREFIX: Final = "KV_"

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    **BUCKET_FIELDS,
    "history": ("max_msgs_per_subject",),
    "marker_ttl": ("subject_delete_marker_ttl",),
    "max_value_size": ("max_msg_size",),
    "republish": ("republish",),
    "mirror": ("mirror", "mirror_direct", "subjects"),
    "sources": ("sources",),
    "direct": ("allow_direct",),
    "message_ttl": ("allow_msg_ttl",),
}
"""What each option sets of the stream behind a bucket."""


@described
class KeyValueOptions(TypedDict, total=False):
    """The settings of a key-value bucket; all may be left out."""

    description: str
    """For people; "" by default."""

    history: int
    """Revisions kept of each key, 1 (the default) to 64."""

    ttl: float | timedelta
    """Seconds after which every value is removed; 0, the default: never."""

    marker_ttl: float | timedelta
    """Allow a ttl for single keys, and keep the mark of what the server removed for this many seconds,
    so that watchers learn of it; at least 1. 0, the default: neither."""

    max_value_size: int
    """The most bytes of one value; -1, the default: no limit."""

    max_bytes: int
    """Bytes of the whole bucket; -1, the default: no limit. A put beyond it fails."""

    storage: StorageKind
    """``"file"``, the default, or ``"memory"``."""

    num_replicas: int
    """How many servers of a cluster keep it; 1 by default."""

    placement: Placement
    """Where a cluster should put it; anywhere by default."""

    republish: Republish
    """Publish every change again under another subject; by default none."""

    mirror: StreamSource
    """Be a read-only copy of another bucket, named by ``name``; puts go to that one. By default it is
    none."""

    sources: Sequence[StreamSource]
    """Take in what is put into other buckets, named by ``name``, under the same keys; none by default."""

    compression: bool
    """Whether the server compresses it on disk; False by default."""

    direct: bool
    """Whether every server that keeps it may answer ``get``, not only its leader: faster, and in a cluster
    perhaps a little old. False, the default, as nats-py's; True of a mirror. nats.go's buckets have it."""

    message_ttl: bool
    """Whether single keys may have a ttl; True, the default, as nats-py's. It cannot be taken back."""

    metadata: Mapping[str, str]
    """Names and values for people and programs; empty by default."""


@dataclass(frozen=True, slots=True)
class KeyValueStatus:
    """A bucket: its settings and how much is in it.

    Attributes:
        values: how many revisions of all keys, marks of deletions included.
        size: bytes, as the server accounts them.
        history, ttl, marker_ttl: as in ``KeyValueOptions``; seconds.
        stream: everything the server says of the stream behind it.
    """

    bucket: str
    description: str
    values: int
    size: int
    history: int
    ttl: float
    marker_ttl: float
    storage: str
    num_replicas: int
    compressed: bool
    metadata: Mapping[str, str]
    stream: StreamInfo

    @classmethod
    def of(cls, stream: StreamInfo) -> KeyValueStatus:
        """What the stream of a bucket says of it."""
        config = stream.config
        return cls(
            bucket=config.name.removeprefix(STREAM_PREFIX),
            description=config.description,
            values=stream.state.messages,
            size=stream.state.bytes,
            history=config.max_msgs_per_subject,
            ttl=config.max_age,
            marker_ttl=config.subject_delete_marker_ttl,
            storage=config.storage,
            num_replicas=config.num_replicas,
            compressed=config.compression != "none",
            metadata=config.metadata,
            stream=stream,
        )


def bucket_config(bucket: str, options: KeyValueOptions) -> StreamConfig:
    """The stream that stands behind a bucket, as every NATS client makes it.

    Raises ConfigurationError for a name or an option that is not accepted.
    """
    history = options.get("history", 1)
    if not 1 <= history <= HISTORY_MAX:
        raise ConfigurationError(f"history is {history}; accepted: 1 to {HISTORY_MAX}")
    mirror, sources = options.get("mirror"), options.get("sources", ())
    if mirror is not None and sources:
        raise ConfigurationError("a bucket is a mirror, or it has sources, but not both")
    ttl, marker_ttl = seconds(options.get("ttl", 0.0)), seconds(options.get("marker_ttl", 0.0))
    copies = mirror is not None or bool(sources)
    if marker_ttl > 0 and not options.get("message_ttl", True):
        raise ConfigurationError("marker_ttl needs message_ttl, which is given as False")
    return bucket_stream(
        "a bucket",
        KeyValueOptions.__annotations__,
        options,
        name=stream_name_of(bucket),
        subjects=() if mirror is not None else (subjects_of(bucket),),
        max_msgs_per_subject=history,
        max_msg_size=options.get("max_value_size", -1),
        republish=options.get("republish"),
        mirror=None if mirror is None else _named_as_stream(mirror),
        mirror_direct=mirror is not None,
        sources=tuple(_source(bucket, source) for source in sources),
        deny_delete=True,
        duplicate_window=0.0 if copies else duplicate_window(ttl),
        allow_direct=options.get("direct", mirror is not None),
        allow_msg_ttl=options.get("message_ttl", mirror is None) or marker_ttl > 0,
        subject_delete_marker_ttl=marker_ttl,
    )


def stream_name_of(bucket: str) -> str:
    """The name of the stream behind a bucket. Raises ConfigurationError for a bad bucket name."""
    return STREAM_PREFIX + bucket_name(bucket)


def subjects_of(bucket: str) -> str:
    """Every key of a bucket."""
    return f"$KV.{bucket}.>"


def _named_as_stream(source: StreamSource) -> StreamSource:
    """Sources are named by bucket or by stream."""
    if source.name.startswith(STREAM_PREFIX):
        return source
    return msgspec.structs.replace(source, name=stream_name_of(source.name))


def _source(bucket: str, source: StreamSource) -> StreamSource:
    """What is put into the other bucket appears under the same key in this one."""
    named = _named_as_stream(source)
    other = named.name.removeprefix(STREAM_PREFIX)
    if other == bucket or named.subject_transforms:
        return named
    moved = SubjectTransformConfig(src=subjects_of(other), dest=subjects_of(bucket))
    return msgspec.structs.replace(named, subject_transforms=(moved,))
