"""The options of ``format("jetstream")``: one table per concern, checked together.

Names follow Spark's Kafka source where the meaning is the same. ``table`` collects and checks, ``values``
reads single values; ``connection`` is common to reading and writing, ``positions`` and ``source`` are for
reading.
"""

from __future__ import annotations

from .connection import Connection
from .positions import LATEST, StartPosition
from .source import CONTINUE, Pace, PartitionRule, SourceOptions, parse_options

__all__ = [
    "CONTINUE",
    "LATEST",
    "Connection",
    "Pace",
    "PartitionRule",
    "SourceOptions",
    "StartPosition",
    "parse_options",
]
