"""Decides which message is meant, by its subject, its headers and its payload, without I/O.

``filters`` says which messages a consumer gets, ``payloads`` which payloads fit, by the ``patterns`` of texts
and paths; ``unique`` says what makes two messages the same. Begin with ``filters``.
"""
