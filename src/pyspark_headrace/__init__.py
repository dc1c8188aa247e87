"""Spark imports this module to find the ``jetstream`` source by name.

For every Python source that a user names, Spark looks into every top-level module called ``pyspark_…`` for
a ``DefaultSource``. So nothing is imported here until that attribute is requested.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from headrace.spark.source import JetStreamDataSource

        return JetStreamDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
