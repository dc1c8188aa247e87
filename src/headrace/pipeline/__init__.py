"""Declared pipelines: a file with sources, views, expectations and sinks, run by ``headrace pipeline``.

``reading`` makes a ``Declared`` of a file (``document``, ``keys``, ``functions``), without Spark and without
a server; ``graph``, ``triggers`` and ``cron`` are pure. ``checkpoints`` and ``status`` read what Spark has
written. Only ``session``, ``frames``, ``queries`` and
``replays`` know Spark.
"""

from __future__ import annotations

from .builder import Pipeline
from .problems import PipelineError, Place, Problem

__all__ = ["Pipeline", "PipelineError", "Place", "Problem"]
