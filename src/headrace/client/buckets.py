"""The buckets of a JetStream context: key-values and objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from .jetstream.calls import Api
from .jetstream.streams import Streams
from .kv.config import KeyValueOptions, KeyValueStatus, bucket_config, stream_name_of
from .kv.keyvalue import KeyValue
from .objects.config import ObjectStoreOptions, object_bucket_config
from .objects.info import ObjectStoreStatus, object_stream_name
from .objects.store import ObjectStore

__all__ = ["Buckets"]


class Buckets:
    """A part of ``JetStream``; never used alone."""

    _api: Api
    _streams: Streams

    # Key-values

    async def key_value(self, bucket: str) -> KeyValue:
        """An existing bucket. Raises JetStreamApiError (10059) if there is none of this name."""
        return KeyValue(self._api, await self._streams.get(stream_name_of(bucket)), bucket)

    async def create_key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Create a bucket, or return the one there is if it is the same.

        What ``options`` are there is said in ``KeyValueOptions``: ``history``, ``ttl``, ``marker_ttl``, …
        Raises JetStreamApiError (10058) if there is one with other settings.
        """
        config = bucket_config(bucket, options)
        return KeyValue(self._api, await self._streams.put("CREATE", config), bucket)

    async def update_key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Give a bucket these settings; what is not named gets its default.

        Raises JetStreamApiError: there is no such bucket (10059), or it cannot be changed so.
        """
        config = bucket_config(bucket, options)
        return KeyValue(self._api, await self._streams.put("UPDATE", config), bucket)

    async def create_or_update_key_value(
        self, bucket: str, **options: Unpack[KeyValueOptions]
    ) -> KeyValue:
        """Make sure that a bucket exists with these settings."""
        config = bucket_config(bucket, options)
        return KeyValue(self._api, await self._streams.put_either(config), bucket)

    async def delete_key_value(self, bucket: str) -> None:
        """Delete a bucket with everything in it. Raises JetStreamApiError (10059)."""
        await self._streams.delete(stream_name_of(bucket))

    async def key_values(self) -> AsyncIterator[str]:
        """The name of each bucket."""
        async for name in self._streams.names(subject="$KV.*.>"):
            if name.startswith("KV_"):
                yield name.removeprefix("KV_")

    async def key_value_statuses(self) -> AsyncIterator[KeyValueStatus]:
        """The settings and the extent of each bucket."""
        async for info in self._streams.infos(subject="$KV.*.>"):
            if info.config.name.startswith("KV_"):
                yield KeyValueStatus.of(info)

    # Objects

    async def object_store(self, bucket: str) -> ObjectStore:
        """An existing bucket of objects. Raises JetStreamApiError (10059) if there is none."""
        return ObjectStore(self._api, await self._streams.get(object_stream_name(bucket)), bucket)

    async def create_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Create a bucket of objects, or return the one there is if it is the same.

        What ``options`` are there is said in ``ObjectStoreOptions``: ``ttl``, ``max_bytes``, …
        Raises JetStreamApiError (10058) if there is one with other settings.
        """
        config = object_bucket_config(bucket, options)
        return ObjectStore(self._api, await self._streams.put("CREATE", config), bucket)

    async def update_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Give a bucket of objects these settings; what is not named gets its default.

        Raises JetStreamApiError: there is no such bucket (10059), or it cannot be changed so.
        """
        config = object_bucket_config(bucket, options)
        return ObjectStore(self._api, await self._streams.put("UPDATE", config), bucket)

    async def create_or_update_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Make sure that a bucket of objects exists with these settings."""
        config = object_bucket_config(bucket, options)
        return ObjectStore(self._api, await self._streams.put_either(config), bucket)

    async def delete_object_store(self, bucket: str) -> None:
        """Delete a bucket with every object in it. Raises JetStreamApiError (10059)."""
        await self._streams.delete(object_stream_name(bucket))

    async def object_stores(self) -> AsyncIterator[str]:
        """The name of each bucket of objects."""
        async for name in self._streams.names(subject="$O.*.M.>"):
            if name.startswith("OBJ_"):
                yield name.removeprefix("OBJ_")

    async def object_store_statuses(self) -> AsyncIterator[ObjectStoreStatus]:
        """The settings and the extent of each bucket of objects."""
        async for info in self._streams.infos(subject="$O.*.M.>"):
            if info.config.name.startswith("OBJ_"):
                yield ObjectStoreStatus.of(info.config.name.removeprefix("OBJ_"), info)
