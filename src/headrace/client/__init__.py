"""The asyncio client: connection, JetStream context, streams, consumers, publishing."""

from __future__ import annotations

from .connection import Connection, connect
from .consume import Consumption
from .consumer import Consumer
from .jetstream import JetStream
from .jsmessage import Batch, JetStreamMessage
from .keyvalue import Entry, KeyExistsError, KeyNotFoundError, KeyValue
from .message import Message
from .options import Options
from .ordered import OrderedConsumer
from .publisher import Publisher, PublishError, PublishFailure
from .stream import Stream, StreamMessage
from .subscription import Subscription

__all__ = [
    "Batch",
    "Connection",
    "Consumer",
    "Consumption",
    "Entry",
    "JetStream",
    "JetStreamMessage",
    "KeyExistsError",
    "KeyNotFoundError",
    "KeyValue",
    "Message",
    "Options",
    "OrderedConsumer",
    "PublishError",
    "PublishFailure",
    "Publisher",
    "Stream",
    "StreamMessage",
    "Subscription",
    "connect",
]
