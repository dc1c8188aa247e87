"""The settings of a bucket of objects, and the stream that stands behind it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TypedDict

from ...api.streams import Placement, StorageKind, StreamConfig
from ...field_docs import described
from ..jetstream.configuration import bucket_stream
from .info import object_stream_name


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
