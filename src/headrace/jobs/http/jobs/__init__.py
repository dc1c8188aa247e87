"""Endpoints for jobs: handed out, finished, found, cancelled, and handed out again.

``pull`` is the specification's way to consume, with dead letters; ``leased`` our own, in batches; ``finding``
is an operator's. What a job may become is decided in ``service``.
"""
