"""Declared pipelines: a file with sources, views, expectations and sinks, run by ``headrace pipeline``.

``reading`` makes a ``Declared`` of a file (``document``, ``keys``, ``functions``), without Spark and without
a server; ``graph``, ``triggers`` and ``plan_text`` are pure. ``checkpoints`` and ``status`` read what Spark
has written. What outlives a run is compared before a query starts: results with their checkpoint
(``bindings``), durables and sums with it (``again``), the query with what it was (``fingerprints``);
``standing`` asks for all that needs no Spark, ``edges`` says what a replay of a range lacks. ``failures``
says what becomes of a query that fails, ``seen`` is what is known of a run from outside, ``trying`` tests a
pipeline with rows from files, ``drawing`` shows it, ``drafting`` writes a first one. Only ``session``,
``shield``, ``python_daemon``, ``frames``, ``queries``, ``run``, ``failures.poison``, ``HadoopFolder`` and
``trying`` know Spark.
"""

from __future__ import annotations

from .builder import Pipeline
from .problems import PipelineError, Place, Problem

__all__ = ["Pipeline", "PipelineError", "Place", "Problem"]
