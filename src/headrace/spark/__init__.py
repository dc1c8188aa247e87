"""Streams in Spark: ``spark.read`` and ``spark.readStream`` with ``format("jetstream")``.

Spark finds the source by name once the package is installed; nothing needs to be registered. The offset is
one stream sequence, a batch is an exact range ``(start, end]``, and reading it again returns the same rows.
``source`` has the classes that Spark calls, ``options`` lists the options. A query's driver is in
``batches``, what its tasks do in ``tasks``, reading in ``reading``, the way to the server in ``links``.
``offsets``, ``loss`` and ``planning.slices`` are pure.
"""

from __future__ import annotations

from typing import Any

__all__ = ["JetStreamDataSource"]


def __getattr__(name: str) -> Any:
    if name == "JetStreamDataSource":
        from .source import JetStreamDataSource

        return JetStreamDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
