"""From a file, or from calls, to a declared pipeline: no Spark, and no server.

``reading`` leads: ``document`` is the file as a tree of values (``lines`` says where each stands), ``keys``
has what each table may hold, ``functions`` finds Python's, ``tables`` what SQL reads. ``builder`` makes the
same tables by calls. What comes of it is a ``Declared`` (``pipeline.model``).
"""
