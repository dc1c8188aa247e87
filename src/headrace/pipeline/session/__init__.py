"""The Spark session of a pipeline: its settings, its output, and its processes, shielded from signals.

``session`` starts it; ``shield`` and ``python_daemon`` keep signals from its processes. ``class_archive``
lets Java come up sooner, ``spark_log`` keeps what Spark prints.
"""
