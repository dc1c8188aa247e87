"""The asyncio client: connection, JetStream context, streams, consumers, publishing.

The package imports nothing: names below are loaded on first use (PEP 562). Spark's processes need a few of
its rooms, and there are many of these processes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..handling.failure_policy import DeadLetter, OnFailure, Retry, Stop
    from .calling import LongCall, ProgressBar, TransferProgress, long_call, progress_bar
    from .connection import Connection, connect
    from .health import ConsumptionStats, Health
    from .jetstream.backup import Backup, BackupError, read_backup
    from .jetstream.consumer import Consumer
    from .jetstream.consuming.consume import Consumption
    from .jetstream.direct_get import DirectBatch
    from .jetstream.message import Batch, JetStreamMessage
    from .jetstream.ordered import OrderedConsumer
    from .jetstream.push import PushSubscription
    from .jetstream.stored_message import StreamMessage
    from .jetstream.stream import Stream
    from .jetstream.watch import Watch
    from .jetstream_context import JetStream
    from .kv import (
        Entry,
        KeyExistsError,
        KeyNotFoundError,
        KeyValue,
        KeyValueOptions,
        KeyValueStatus,
    )
    from .message import Message
    from .nats_context import Context, read_context
    from .net.options import Options
    from .objects.info import (
        ObjectDamagedError,
        ObjectExistsError,
        ObjectInfo,
        ObjectLink,
        ObjectLinkError,
        ObjectNotFoundError,
        ObjectStoreOptions,
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
    "LongCall",
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
    "ProgressBar",
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
    "long_call",
    "progress_bar",
    "read_backup",
    "read_context",
]

_MODULES = {
    ".handling.failure_policy": ("DeadLetter", "OnFailure", "Retry", "Stop"),
    "calling": (
        "LongCall",
        "ProgressBar",
        "TransferProgress",
        "long_call",
        "progress_bar",
    ),
    "connection": ("Connection", "connect"),
    "health": ("ConsumptionStats", "Health"),
    "jetstream.backup": ("Backup", "BackupError", "read_backup"),
    "jetstream.consumer": ("Consumer",),
    "jetstream.consuming.consume": ("Consumption",),
    "jetstream.direct_get": ("DirectBatch",),
    "jetstream.message": ("Batch", "JetStreamMessage"),
    "jetstream.ordered": ("OrderedConsumer",),
    "jetstream.push": ("PushSubscription",),
    "jetstream.stored_message": ("StreamMessage",),
    "jetstream.stream": ("Stream",),
    "jetstream.watch": ("Watch",),
    "jetstream_context": ("JetStream",),
    "kv": (
        "Entry",
        "KeyExistsError",
        "KeyNotFoundError",
        "KeyValue",
        "KeyValueOptions",
        "KeyValueStatus",
    ),
    "message": ("Message",),
    "nats_context": ("Context", "read_context"),
    "net.options": ("Options",),
    "objects.info": (
        "ObjectDamagedError",
        "ObjectExistsError",
        "ObjectInfo",
        "ObjectLink",
        "ObjectLinkError",
        "ObjectNotFoundError",
        "ObjectStoreOptions",
        "ObjectStoreStatus",
    ),
    "objects.reader": ("ObjectReader",),
    "objects.store": ("ObjectStore",),
    "publish.atomic_batch": ("AtomicBatch", "BatchRefusedError"),
    "publish.publisher": ("PublishError", "PublishFailure", "Publisher"),
    "subscription": ("Subscription",),
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
