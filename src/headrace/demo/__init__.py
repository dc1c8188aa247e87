"""The flights demo: a year of real flights through the broker, the client and Spark.

``run.run_demo`` is the whole job; ``flights`` is its pure part. Heavy packages are
imported only when they are needed, so that a missing one causes a sentence and not a traceback.
"""

from __future__ import annotations
