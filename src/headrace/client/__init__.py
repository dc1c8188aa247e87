"""The asyncio client: connection, JetStream context, streams, consumers, publishing."""

from __future__ import annotations

from .connection import Connection, connect
from .handlers.failure import DeadLetter, OnFailure, Retry, Stop
from .health import ConsumptionStats, Health
from .jetstream.backup import Backup, BackupError, TransferProgress, read_backup
from .jetstream.consume import Consumption
from .jetstream.consumer import Consumer
from .jetstream.direct_get import DirectBatch
from .jetstream.message import Batch, JetStreamMessage
from .jetstream.ordered import OrderedConsumer
from .jetstream.push import PushSubscription
from .jetstream.stored_message import StreamMessage
from .jetstream.stream import Stream
from .jetstream.watch import Watch
from .jetstream_context import JetStream
from .kv.config import KeyValueOptions, KeyValueStatus
from .kv.keyvalue import Entry, KeyExistsError, KeyNotFoundError, KeyValue
from .message import Message
from .nats_context import Context, read_context
from .net.options import Options
from .objects.config import ObjectStoreOptions
from .objects.info import (
    ObjectDamagedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectLink,
    ObjectLinkError,
    ObjectNotFoundError,
    ObjectStoreStatus,
)
from .objects.reader import ObjectReader
from .objects.store import ObjectStore
from .publish.atomic_batch import AtomicBatch, BatchRefusedError
from .publish.publisher import Publisher, PublishError, PublishFailure
from .subscription import Subscription

__all__ = [
    "AtomicBatch",
    "Backup",
    "BackupError",
    "Batch",
    "BatchRefusedError",
    "Connection",
    "Consumer",
    "Consumption",
    "ConsumptionStats",
    "Context",
    "DeadLetter",
    "DirectBatch",
    "Entry",
    "Health",
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
    "OnFailure",
    "Options",
    "OrderedConsumer",
    "PublishError",
    "PublishFailure",
    "Publisher",
    "PushSubscription",
    "Retry",
    "Stop",
    "Stream",
    "StreamMessage",
    "Subscription",
    "TransferProgress",
    "Watch",
    "connect",
    "read_backup",
    "read_context",
]
