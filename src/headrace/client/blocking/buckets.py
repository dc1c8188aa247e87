"""The buckets of the blocking JetStream context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from .. import buckets as aio
from ..kv.config import KeyValueOptions, KeyValueStatus
from ..objects.config import ObjectStoreOptions
from ..objects.info import ObjectStoreStatus
from .keyvalue import KeyValue
from .objectstore import ObjectStore
from .portal import Blocking, blocking, iterate

__all__ = ["Buckets"]


class Buckets(Blocking):
    """A part of ``JetStream``; never used alone."""

    __slots__ = ()
    _inner: aio.Buckets

    # Key-values

    def key_value(self, bucket: str) -> KeyValue:
        """An existing bucket. Raises JetStreamApiError (10059) if there is none of this name."""
        return KeyValue(self._portal, self._portal.run(self._inner.key_value(bucket)))

    def create_key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Create a bucket; see ``headrace.JetStream.create_key_value``."""
        call = self._inner.create_key_value(bucket, **options)
        return KeyValue(self._portal, self._portal.run(call))

    def update_key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Give a bucket these settings; see ``headrace.JetStream.update_key_value``."""
        call = self._inner.update_key_value(bucket, **options)
        return KeyValue(self._portal, self._portal.run(call))

    def create_or_update_key_value(
        self, bucket: str, **options: Unpack[KeyValueOptions]
    ) -> KeyValue:
        """Make sure that a bucket exists with these settings."""
        call = self._inner.create_or_update_key_value(bucket, **options)
        return KeyValue(self._portal, self._portal.run(call))

    delete_key_value = blocking(aio.Buckets.delete_key_value)

    def key_values(self) -> Iterator[str]:
        """The name of each bucket."""
        return iterate(self._portal, self._inner.key_values())

    def key_value_statuses(self) -> Iterator[KeyValueStatus]:
        """The settings and the extent of each bucket."""
        return iterate(self._portal, self._inner.key_value_statuses())

    # Objects

    def object_store(self, bucket: str) -> ObjectStore:
        """An existing bucket of objects. Raises JetStreamApiError (10059) if there is none."""
        return ObjectStore(self._portal, self._portal.run(self._inner.object_store(bucket)))

    def create_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Create a bucket of objects; see ``headrace.JetStream.create_object_store``."""
        call = self._inner.create_object_store(bucket, **options)
        return ObjectStore(self._portal, self._portal.run(call))

    def update_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Give a bucket of objects these settings; see ``headrace.JetStream.update_object_store``."""
        call = self._inner.update_object_store(bucket, **options)
        return ObjectStore(self._portal, self._portal.run(call))

    def create_or_update_object_store(
        self, bucket: str, **options: Unpack[ObjectStoreOptions]
    ) -> ObjectStore:
        """Make sure that a bucket of objects exists with these settings."""
        call = self._inner.create_or_update_object_store(bucket, **options)
        return ObjectStore(self._portal, self._portal.run(call))

    delete_object_store = blocking(aio.Buckets.delete_object_store)

    def object_stores(self) -> Iterator[str]:
        """The name of each bucket of objects."""
        return iterate(self._portal, self._inner.object_stores())

    def object_store_statuses(self) -> Iterator[ObjectStoreStatus]:
        """The settings and the extent of each bucket of objects."""
        return iterate(self._portal, self._inner.object_store_statuses())
