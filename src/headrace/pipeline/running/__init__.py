"""A run: a session and its queries, from their start to their end.

``life`` is that of a runner, with its lease and signals. ``run`` puts a run together: as declared, or over a
range once more. ``runner`` starts each query when it is due and looks at it (pure: time and queries are
handed in); ``query`` is one of Spark, as the runner looks at it.
"""
