"""The driver side of a streaming query: how far each micro-batch reaches, and by which tasks it is read.

``query`` shares a batch out among the streams, each of which has a ``driver``; ``plans`` asks for what the
tasks need to know. ``handing_over`` gives the rows of a small batch with its plan, ``idle`` says how a query
waits for news. ``progress`` and ``lag`` show where it is.
"""
