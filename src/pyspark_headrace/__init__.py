"""What Spark imports to find the ``jetstream`` source by name.

Spark looks into every top-level module called ``pyspark_…`` for a ``DefaultSource``, for every Python
source a user names; so nothing is imported here until that attribute is asked for.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from headrace.spark.source import JetStreamDataSource

        return JetStreamDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
