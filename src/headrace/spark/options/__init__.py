"""The options of ``format("jetstream")``: one table per concern, checked together.

Names follow Spark's Kafka source where the meaning is the same. ``table`` collects and checks, ``values``
reads single values; ``connection`` is common to reading and writing, ``positions`` and ``source`` are for
reading.
"""

from __future__ import annotations

from .connection import CONNECTION_ALIASES, CONNECTION_OPTIONS, Connection, connection_of
from .lag import LAG_OPTIONS, LagRule
from .positions import EARLIEST, LATEST, POSITION_OPTIONS, Bounds, StartPosition, StreamRange
from .source import (
    OPTIONS,
    SOURCE_OPTIONS,
    BadMessageRule,
    Pace,
    PartitionRule,
    SourceOptions,
    parse_options,
)
from .table import Accepted, Option
from .values import RefusedError

__all__ = [
    "CONNECTION_ALIASES",
    "CONNECTION_OPTIONS",
    "EARLIEST",
    "LAG_OPTIONS",
    "LATEST",
    "OPTIONS",
    "POSITION_OPTIONS",
    "SOURCE_OPTIONS",
    "Accepted",
    "BadMessageRule",
    "Bounds",
    "Connection",
    "LagRule",
    "Option",
    "Pace",
    "PartitionRule",
    "RefusedError",
    "SourceOptions",
    "StartPosition",
    "StreamRange",
    "connection_of",
    "parse_options",
]
