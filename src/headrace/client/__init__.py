"""The asyncio client: connection, JetStream context, streams, consumers, publishing."""

from __future__ import annotations

from .connection import Connection, connect
from .message import Message
from .options import Options
from .subscription import Subscription

__all__ = ["Connection", "Message", "Options", "Subscription", "connect"]
