"""Declared pipelines: a file with sources, views, expectations and sinks, run by ``headrace pipeline``.

``declaring`` makes a ``Declared`` (``model``) of a file, without Spark and without a server; ``graph`` says
what needs what, ``triggers`` when a query runs, ``options`` what Spark gets of its sources and sinks.
``checking`` finds before a run what is wrong, by servers and by what earlier runs left (``checkpoints``).
``queries`` makes the queries of Spark, ``running`` runs them in a ``session``, ``failures`` says what becomes
of one that fails, ``resets`` begins one anew at another place. Of several runners one holds the ``lease``,
the others ``standby``. ``status`` is what is known of a run from outside, ``testing`` tests a pipeline with
rows from files, ``drawing`` shows it, ``scaffold`` writes a first one. Only ``session``, ``queries``,
``running``, ``testing``, ``standby.dry``, ``failures.poison`` and ``HadoopFolder`` know Spark.
"""

from __future__ import annotations

from .declaring.document import Pipeline
from .model import PipelineError, Place, Problem

__all__ = ["Pipeline", "PipelineError", "Place", "Problem"]
