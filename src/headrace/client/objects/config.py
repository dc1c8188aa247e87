"""The settings of a bucket of objects, and the stream that stands behind it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TypedDict

from ...api.streams import Placement, StorageKind, StreamConfig
from ...errors import ConfigurationError
from ..jetstream.configuration import seconds
from .info import object_stream_name

__all__ = ["ObjectStoreOptions"]


class ObjectStoreOptions(TypedDict, total=False):
    """The settings of a bucket of objects; all may be left out."""

    description: str

    ttl: float | timedelta
    """Seconds after which an object is removed; 0, the default: never."""

    max_bytes: int
    """Of all objects together; -1, the default: no limit. A put beyond it fails."""

    storage: StorageKind
    """``"file"``, the default, or ``"memory"``."""

    num_replicas: int
    """How many servers of a cluster keep it; 1."""

    placement: Placement
    """Where a cluster should put it."""

    compression: bool
    """Whether the server compresses it on disk."""

    metadata: Mapping[str, str]


def object_bucket_config(bucket: str, options: ObjectStoreOptions) -> StreamConfig:
    """The stream that stands behind a bucket, as every NATS client makes it.

    Raises ConfigurationError for a name or an option that is not accepted.
    """
    known = ObjectStoreOptions.__annotations__
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigurationError(
            f"an object store has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    return StreamConfig(
        name=object_stream_name(bucket),
        description=options.get("description", ""),
        subjects=(f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"),
        max_age=seconds(options.get("ttl", 0.0)),
        max_bytes=options.get("max_bytes", -1),
        storage=options.get("storage", "file"),
        num_replicas=options.get("num_replicas", 1),
        placement=options.get("placement"),
        compression="s2" if options.get("compression") else "none",
        metadata=dict(options.get("metadata", {})),
        discard="new",
        allow_rollup_hdrs=True,
        allow_direct=True,
    )
