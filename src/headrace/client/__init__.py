"""The asyncio client: connection, JetStream context, streams, consumers, publishing."""

from __future__ import annotations

from .connection import Connection, connect
from .consume import Consumption
from .consumer import Consumer
from .jetstream import JetStream
from .jsmessage import Batch, JetStreamMessage
from .message import Message
from .options import Options
from .publisher import Publisher, PublishError, PublishFailure
from .stream import Stream, StreamMessage
from .subscription import Subscription

__all__ = [
    "Batch",
    "Connection",
    "Consumer",
    "Consumption",
    "JetStream",
    "JetStreamMessage",
    "Message",
    "Options",
    "PublishError",
    "PublishFailure",
    "Publisher",
    "Stream",
    "StreamMessage",
    "Subscription",
    "connect",
]
