"""The flights demo: a year of real flights through the broker, the client and Spark.

``run.run_demo`` is the whole job; ``chains`` and ``flights`` are its pure parts. Nothing heavy is
imported before it is needed, so that a missing package is a sentence and not a traceback.
"""

from __future__ import annotations
