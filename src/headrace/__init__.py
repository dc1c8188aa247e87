"""Headrace: pull-based streaming for Python and Spark.

The package imports nothing heavy: names below are loaded on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api.consumers import ConsumerConfig, ConsumerInfo
    from .api.messages import PubAck
    from .api.streams import (
        ExternalStream,
        StreamConfig,
        StreamConsumerSource,
        StreamInfo,
        StreamSource,
        SubjectTransformConfig,
    )
    from .client.batch import AtomicBatch, BatchRefusedError
    from .client.connection import Connection, connect
    from .client.consume import Consumption
    from .client.consumer import Consumer
    from .client.contexts import Context, read_context
    from .client.directget import DirectBatch
    from .client.jetstream import JetStream
    from .client.jsmessage import Batch, JetStreamMessage
    from .client.keyvalue import Entry, KeyExistsError, KeyNotFoundError, KeyValue
    from .client.kvconfig import KeyValueStatus
    from .client.message import Message
    from .client.objectinfo import (
        ObjectDamagedError,
        ObjectExistsError,
        ObjectInfo,
        ObjectLink,
        ObjectLinkError,
        ObjectNotFoundError,
        ObjectStoreStatus,
    )
    from .client.objectreader import ObjectReader
    from .client.objectstore import ObjectStore
    from .client.options import Options
    from .client.ordered import OrderedConsumer
    from .client.publisher import Publisher, PublishError, PublishFailure
    from .client.push import PushSubscription
    from .client.stream import Stream, StreamMessage
    from .client.subscription import Subscription
    from .client.watch import Watch
    from .embedded import Broker
    from .errors import (
        AuthorizationError,
        BufferFullError,
        ConfigurationError,
        ConnectFailedError,
        ConnectionClosedError,
        DisconnectedError,
        HeadraceError,
        HeartbeatMissedError,
        InvalidSubjectError,
        JetStreamApiError,
        LimitExceededError,
        NoRespondersError,
        ProtocolError,
        PullError,
        ServerError,
        SlowConsumerError,
    )
    from .errors import TimeoutError_ as TimeoutError  # noqa: A004

__all__ = [
    "AtomicBatch",
    "AuthorizationError",
    "Batch",
    "BatchRefusedError",
    "Broker",
    "BufferFullError",
    "ConfigurationError",
    "ConnectFailedError",
    "Connection",
    "ConnectionClosedError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInfo",
    "Consumption",
    "Context",
    "DirectBatch",
    "DisconnectedError",
    "Entry",
    "ExternalStream",
    "HeadraceError",
    "HeartbeatMissedError",
    "InvalidSubjectError",
    "JetStream",
    "JetStreamApiError",
    "JetStreamMessage",
    "KeyExistsError",
    "KeyNotFoundError",
    "KeyValue",
    "KeyValueStatus",
    "LimitExceededError",
    "Message",
    "NoRespondersError",
    "ObjectDamagedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectLink",
    "ObjectLinkError",
    "ObjectNotFoundError",
    "ObjectReader",
    "ObjectStore",
    "ObjectStoreStatus",
    "Options",
    "OrderedConsumer",
    "ProtocolError",
    "PubAck",
    "PublishError",
    "PublishFailure",
    "Publisher",
    "PullError",
    "PushSubscription",
    "ServerError",
    "SlowConsumerError",
    "Stream",
    "StreamConfig",
    "StreamConsumerSource",
    "StreamInfo",
    "StreamMessage",
    "StreamSource",
    "SubjectTransformConfig",
    "Subscription",
    "TimeoutError",
    "Watch",
    "__version__",
    "connect",
    "read_context",
]

_HOMES = {
    "client.batch": ("AtomicBatch", "BatchRefusedError"),
    "client.connection": ("Connection", "connect"),
    "api.consumers": ("ConsumerConfig", "ConsumerInfo"),
    "api.messages": ("PubAck",),
    "api.streams": (
        "ExternalStream",
        "StreamConfig",
        "StreamConsumerSource",
        "StreamInfo",
        "StreamSource",
        "SubjectTransformConfig",
    ),
    "client.contexts": ("Context", "read_context"),
    "client.directget": ("DirectBatch",),
    "client.consume": ("Consumption",),
    "client.consumer": ("Consumer",),
    "client.jetstream": ("JetStream",),
    "client.jsmessage": ("Batch", "JetStreamMessage"),
    "client.keyvalue": ("Entry", "KeyExistsError", "KeyNotFoundError", "KeyValue"),
    "client.kvconfig": ("KeyValueStatus",),
    "client.message": ("Message",),
    "client.objectinfo": (
        "ObjectDamagedError",
        "ObjectExistsError",
        "ObjectInfo",
        "ObjectLink",
        "ObjectLinkError",
        "ObjectNotFoundError",
        "ObjectStoreStatus",
    ),
    "client.objectreader": ("ObjectReader",),
    "client.objectstore": ("ObjectStore",),
    "client.options": ("Options",),
    "client.ordered": ("OrderedConsumer",),
    "client.publisher": ("PublishError", "PublishFailure", "Publisher"),
    "client.stream": ("Stream", "StreamMessage"),
    "client.push": ("PushSubscription",),
    "client.subscription": ("Subscription",),
    "embedded": ("Broker",),
    "client.watch": ("Watch",),
}
_LAZY = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "TimeoutError":
        from .errors import TimeoutError_

        value: Any = TimeoutError_
    elif name in _LAZY:
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    elif name in __all__:
        value = getattr(importlib.import_module(".errors", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
