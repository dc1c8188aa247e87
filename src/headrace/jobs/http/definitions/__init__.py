"""Endpoints for what there is: producers, channels and consumers, and API keys with the audit log.

``forms`` are the specification's, for all three; ``channels`` and ``consumers`` our own, with more of each.
What may be defined is decided in ``service``.
"""
