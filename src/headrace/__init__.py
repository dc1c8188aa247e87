"""Headrace: pull-based streaming for Python and Spark.

The package imports nothing heavy: names below are loaded on first use (PEP 562).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api.consumers import ConsumerConfig, ConsumerInfo
    from .api.errors import ErrorCode
    from .api.keywords import ConsumerFields, OrderedConsumerFields, StreamFields
    from .api.messages import PubAck
    from .api.streams import (
        ExternalStream,
        StreamConfig,
        StreamConsumerSource,
        StreamInfo,
        StreamSource,
        SubjectTransformConfig,
    )
    from .broker.server import BrokerOptions
    from .broker.server.config.keywords import BrokerSettings
    from .client.calling import LongCall, ProgressBar, TransferProgress, long_call, progress_bar
    from .client.connection import Connection, connect
    from .client.health import ConsumptionStats, Health
    from .client.jetstream.backup import Backup, BackupError, read_backup
    from .client.jetstream.consumer import Consumer
    from .client.jetstream.consuming.consume import Consumption
    from .client.jetstream.direct_get import DirectBatch
    from .client.jetstream.message import Batch, JetStreamMessage
    from .client.jetstream.ordered import OrderedConsumer
    from .client.jetstream.push import PushSubscription
    from .client.jetstream.stored_message import StreamMessage
    from .client.jetstream.stream import Stream
    from .client.jetstream.watch import Watch
    from .client.jetstream_context import JetStream
    from .client.kv import (
        Entry,
        KeyExistsError,
        KeyNotFoundError,
        KeyValue,
        KeyValueOptions,
        KeyValueStatus,
    )
    from .client.message import Message
    from .client.nats_context import Context, read_context
    from .client.net.connect_options import ConnectOptions
    from .client.net.options import Options
    from .client.objects.info import (
        ObjectDamagedError,
        ObjectExistsError,
        ObjectInfo,
        ObjectLink,
        ObjectLinkError,
        ObjectNotFoundError,
        ObjectStoreOptions,
        ObjectStoreStatus,
    )
    from .client.objects.reader import ObjectReader
    from .client.objects.store import ObjectStore
    from .client.publish.atomic_batch import AtomicBatch, BatchRefusedError
    from .client.publish.publisher import Publisher, PublishError, PublishFailure
    from .client.services import (
        EndpointInfo,
        EndpointStats,
        Service,
        ServiceGroup,
        ServiceInfo,
        ServiceStats,
    )
    from .client.subscription import Subscription
    from .embedded import Broker
    from .errors import (
        AuthorizationError,
        BucketNotFoundError,
        BufferFullError,
        ConfigurationError,
        ConnectFailedError,
        ConnectionClosedError,
        ConsumerNotFoundError,
        DisconnectedError,
        DisconnectedUnknownError,
        HandlerFailedError,
        HeadraceError,
        HeartbeatMissedError,
        InvalidSubjectError,
        JetStreamApiError,
        LimitExceededError,
        NoRespondersError,
        OutcomeUnknownError,
        ProtocolError,
        PullError,
        RequestTimeoutError,
        ServerError,
        ServiceError,
        SlowConsumerError,
        StreamExistsError,
        StreamLeftoversError,
        StreamNotFoundError,
        TimeoutUnknownError,
        UnsentError,
        WrongLoopError,
    )
    from .handling.failure_policy import DeadLetter, Retry, Stop

__all__ = [
    "AtomicBatch",
    "AuthorizationError",
    "Backup",
    "BackupError",
    "Batch",
    "BatchRefusedError",
    "Broker",
    "BrokerOptions",
    "BrokerSettings",
    "BucketNotFoundError",
    "BufferFullError",
    "ConfigurationError",
    "ConnectFailedError",
    "ConnectOptions",
    "Connection",
    "ConnectionClosedError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerFields",
    "ConsumerInfo",
    "ConsumerNotFoundError",
    "Consumption",
    "ConsumptionStats",
    "Context",
    "DeadLetter",
    "DirectBatch",
    "DisconnectedError",
    "DisconnectedUnknownError",
    "EndpointInfo",
    "EndpointStats",
    "Entry",
    "ErrorCode",
    "ExternalStream",
    "HandlerFailedError",
    "HeadraceError",
    "Health",
    "HeartbeatMissedError",
    "InvalidSubjectError",
    "JetStream",
    "JetStreamApiError",
    "JetStreamMessage",
    "KeyExistsError",
    "KeyNotFoundError",
    "KeyValue",
    "KeyValueOptions",
    "KeyValueStatus",
    "LimitExceededError",
    "LongCall",
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
    "ObjectStoreOptions",
    "ObjectStoreStatus",
    "Options",
    "OrderedConsumer",
    "OrderedConsumerFields",
    "OutcomeUnknownError",
    "ProgressBar",
    "ProtocolError",
    "PubAck",
    "PublishError",
    "PublishFailure",
    "Publisher",
    "PullError",
    "PushSubscription",
    "RequestTimeoutError",
    "Retry",
    "ServerError",
    "Service",
    "ServiceError",
    "ServiceGroup",
    "ServiceInfo",
    "ServiceStats",
    "SlowConsumerError",
    "Stop",
    "Stream",
    "StreamConfig",
    "StreamConsumerSource",
    "StreamExistsError",
    "StreamFields",
    "StreamInfo",
    "StreamLeftoversError",
    "StreamMessage",
    "StreamNotFoundError",
    "StreamSource",
    "SubjectTransformConfig",
    "Subscription",
    "TimeoutUnknownError",
    "TransferProgress",
    "UnsentError",
    "Watch",
    "WrongLoopError",
    "__version__",
    "connect",
    "long_call",
    "progress_bar",
    "read_backup",
    "read_context",
]

_HOMES = {  # of what is neither an error nor in ``headrace.client``
    "Broker": "embedded",
    "BrokerOptions": "broker.server",
    "BrokerSettings": "broker.server.config.keywords",
    "ConnectOptions": "client.net.connect_options",
    "ConsumerConfig": "api.consumers",
    "ConsumerFields": "api.keywords",
    "ConsumerInfo": "api.consumers",
    "EndpointInfo": "client.services",
    "EndpointStats": "client.services",
    "ErrorCode": "api.errors",
    "ExternalStream": "api.streams",
    "OrderedConsumerFields": "api.keywords",
    "PubAck": "api.messages",
    "Service": "client.services",
    "ServiceGroup": "client.services",
    "ServiceInfo": "client.services",
    "ServiceStats": "client.services",
    "StreamConfig": "api.streams",
    "StreamConsumerSource": "api.streams",
    "StreamFields": "api.keywords",
    "StreamInfo": "api.streams",
    "StreamSource": "api.streams",
    "SubjectTransformConfig": "api.streams",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import errors

    value = getattr(errors, name, None)
    if value is None:
        home = importlib.import_module(f".{_HOMES.get(name, 'client')}", __name__)
        value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
