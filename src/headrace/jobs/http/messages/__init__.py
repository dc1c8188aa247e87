"""Endpoints for messages: published alone, in a batch, again and again, fed by a stream; and read.

Each is checked here, and stored by ``service.publishing``. Begin with ``publishing``.
"""
