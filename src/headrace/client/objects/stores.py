"""Making and changing buckets of objects."""

from __future__ import annotations

from typing import Final

from ...api.errors import Errors
from ...errors import JetStreamApiError
from ..jetstream.configuration import BUCKET_FIELDS, changed_bucket, known_bucket
from ..jetstream.stream import Stream
from ..jetstream.streams import Streams
from .config import ObjectStoreOptions, object_bucket_config

_EXISTS: Final = Errors.STREAM_NAME_EXISTS.err_code


async def update(streams: Streams, bucket: str, options: ObjectStoreOptions) -> Stream:
    """Change what ``options`` name of the stream of a bucket; the rest stays."""
    wanted = object_bucket_config(bucket, options)
    with known_bucket(bucket):
        there = await streams.info(wanted.name)
        return await streams.change(
            there, changed_bucket(there.config, wanted, options, BUCKET_FIELDS)
        )


async def create_or_update(streams: Streams, bucket: str, options: ObjectStoreOptions) -> Stream:
    """Make sure that there is a stream of a bucket that has what ``options`` name."""
    try:
        return await streams.put("CREATE", object_bucket_config(bucket, options))
    except JetStreamApiError as error:
        if error.err_code != _EXISTS:
            raise
    return streams.told(await update(streams, bucket, options))
