"""Endpoints for messages: published alone, in a batch, again and again, or into a stream; and read.

Each is checked here, and stored by ``service.publishing``, or by the stream of the channel (``streamed``).
Begin with ``broadcast``.
"""
