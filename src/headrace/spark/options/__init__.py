"""The options of ``format("jetstream")``: one table per concern, checked together.

Names follow Spark's Kafka source where the meaning is the same. ``table`` collects and checks, ``values``
reads single values; ``connection`` is common to reading and writing, ``source`` is for reading.
"""

from __future__ import annotations

from .connection import CONNECTION_ALIASES, CONNECTION_OPTIONS, Connection, connection_of
from .source import (
    EARLIEST,
    LATEST,
    OPTIONS,
    SOURCE_OPTIONS,
    BadMessageRule,
    PartitionRule,
    SourceOptions,
    StartPosition,
    parse_options,
)
from .table import Accepted, Option
from .values import RefusedError

__all__ = [
    "CONNECTION_ALIASES",
    "CONNECTION_OPTIONS",
    "EARLIEST",
    "LATEST",
    "OPTIONS",
    "SOURCE_OPTIONS",
    "Accepted",
    "BadMessageRule",
    "Connection",
    "Option",
    "PartitionRule",
    "RefusedError",
    "SourceOptions",
    "StartPosition",
    "connection_of",
    "parse_options",
]
