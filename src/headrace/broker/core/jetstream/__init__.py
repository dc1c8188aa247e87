"""The JetStream brain: streams, consumers and their API. Deterministic: time and disk are handed in."""

from __future__ import annotations

from .engine import JetStream
from .options import JetStreamOptions

__all__ = ["JetStream", "JetStreamOptions"]
