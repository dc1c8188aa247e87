"""The client without ``async``: the same names, for threads, notebooks and Spark executors.

::

    from headrace import sync

    with sync.connect("nats://127.0.0.1:4222") as connection:
        consumer = connection.jetstream().consumer("ORDERS", "billing")
        batch = consumer.fetch(100)
        ...
        batch.ack()

Each connection has one background thread, which ends when the connection is closed. A connection cannot
be used after a fork: connect in the process that uses it. ``sync.Broker`` runs a broker on such a
thread; its ``connect`` needs no socket. ``sync.groups`` is ``headrace.groups`` for threads.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..client.blocking.buckets import KeyValue, ObjectReader, ObjectStore, Watch
from ..client.blocking.calling import LongCall, long_call
from ..client.blocking.connection import Connection, connect
from ..client.blocking.consumer import Consumer, Consumption, OrderedConsumer
from ..client.blocking.jetstream import JetStream, Stream
from ..client.blocking.messages import Batch, JetStreamMessage, Message
from ..client.blocking.publisher import AtomicBatch, Publisher
from ..client.blocking.services import Service, ServiceGroup
from ..client.blocking.subscription import PushSubscription, Subscription

if TYPE_CHECKING:
    from ..embedded import BlockingBroker
    from . import groups as groups

    Broker = BlockingBroker

__all__ = [
    "AtomicBatch",
    "Batch",
    "Broker",
    "Connection",
    "Consumer",
    "Consumption",
    "JetStream",
    "JetStreamMessage",
    "KeyValue",
    "LongCall",
    "Message",
    "ObjectReader",
    "ObjectStore",
    "OrderedConsumer",
    "Publisher",
    "PushSubscription",
    "Service",
    "ServiceGroup",
    "Stream",
    "Subscription",
    "Watch",
    "connect",
    "long_call",
]


def __getattr__(name: str) -> Any:
    """Load ``Broker`` and ``groups`` on first use: a client does not need them."""
    if name == "groups":
        return importlib.import_module(".groups", __name__)
    if name != "Broker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = importlib.import_module("..embedded", __name__).BlockingBroker
    return value
