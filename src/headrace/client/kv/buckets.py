"""Making and changing key-value buckets, whoever made them.

Clients of NATS differ in two settings of a new bucket: whether it is read directly, and whether keys may
have a ttl. Where the caller names neither, a bucket keeps what it has.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...api.errors import Errors
from ...api.streams import StreamConfig
from ...errors import JetStreamApiError
from ..jetstream.configuration import changed_bucket, known_bucket
from ..jetstream.stream import Stream
from ..jetstream.streams import Streams
from .config import FIELDS, KeyValueOptions, bucket_config

_EXISTS: Final = Errors.STREAM_NAME_EXISTS.err_code


async def create(streams: Streams, bucket: str, options: KeyValueOptions) -> Stream:
    """Create the stream of a bucket, or find the one there is, if it has what ``options`` say."""
    wanted = bucket_config(bucket, options)
    try:
        return await streams.put("CREATE", wanted)
    except JetStreamApiError as error:
        if error.err_code != _EXISTS:
            raise
        kept = await _kept(streams, wanted, options)
        if kept == wanted:
            raise
    return await streams.put("CREATE", kept)  # the server says whether it is the same now


async def update(streams: Streams, bucket: str, options: KeyValueOptions) -> Stream:
    """Change what ``options`` name of the stream of a bucket; the rest stays."""
    wanted = bucket_config(bucket, options)
    with known_bucket(bucket):
        there = await streams.info(wanted.name)
        changed = changed_bucket(there.config, wanted, options, FIELDS)
        if options.get("marker_ttl") and "message_ttl" not in options:
            changed = msgspec.structs.replace(changed, allow_msg_ttl=True)
        return await streams.change(there, changed)


async def create_or_update(streams: Streams, bucket: str, options: KeyValueOptions) -> Stream:
    """Make sure that there is a stream of a bucket that has what ``options`` name."""
    try:
        return await streams.put("CREATE", bucket_config(bucket, options))
    except JetStreamApiError as error:
        if error.err_code != _EXISTS:
            raise
    return streams.told(await update(streams, bucket, options))


async def _kept(streams: Streams, wanted: StreamConfig, options: KeyValueOptions) -> StreamConfig:
    """``wanted`` with what the stream there has, of the settings in which clients differ."""
    present = (await streams.info(wanted.name)).config
    changes: dict[str, bool] = {}
    if "direct" not in options:
        changes["allow_direct"] = present.allow_direct
    if "message_ttl" not in options and not wanted.subject_delete_marker_ttl:
        changes["allow_msg_ttl"] = present.allow_msg_ttl
    return msgspec.structs.replace(wanted, **changes)
