"""The asyncio client: connection, JetStream context, streams, consumers, publishing."""

from __future__ import annotations

from .batch import AtomicBatch, BatchRefusedError
from .connection import Connection, connect
from .consume import Consumption
from .consumer import Consumer
from .contexts import Context, read_context
from .directget import DirectBatch
from .jetstream import JetStream
from .jsmessage import Batch, JetStreamMessage
from .keyvalue import Entry, KeyExistsError, KeyNotFoundError, KeyValue
from .kvconfig import KeyValueOptions, KeyValueStatus
from .message import Message
from .objectconfig import ObjectStoreOptions
from .objectinfo import (
    ObjectDamagedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectLink,
    ObjectLinkError,
    ObjectNotFoundError,
    ObjectStoreStatus,
)
from .objectreader import ObjectReader
from .objectstore import ObjectStore
from .options import Options
from .ordered import OrderedConsumer
from .publisher import Publisher, PublishError, PublishFailure
from .push import PushSubscription
from .stream import Stream, StreamMessage
from .subscription import Subscription
from .watch import Watch

__all__ = [
    "AtomicBatch",
    "Batch",
    "BatchRefusedError",
    "Connection",
    "Consumer",
    "Consumption",
    "Context",
    "DirectBatch",
    "Entry",
    "JetStream",
    "JetStreamMessage",
    "KeyExistsError",
    "KeyNotFoundError",
    "KeyValue",
    "KeyValueOptions",
    "KeyValueStatus",
    "Message",
    "ObjectDamagedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectLink",
    "ObjectLinkError",
    "ObjectNotFoundError",
    "ObjectReader",
    "ObjectStore",
    "ObjectStoreOptions",
    "ObjectStoreStatus",
    "Options",
    "OrderedConsumer",
    "PublishError",
    "PublishFailure",
    "Publisher",
    "PushSubscription",
    "Stream",
    "StreamMessage",
    "Subscription",
    "Watch",
    "connect",
    "read_context",
]
