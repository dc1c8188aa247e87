"""Streams and consumers, as their user holds them, over a session of ``net``.

Every call of the JetStream API goes through ``calls.Api``. ``streams`` creates, finds and lists; ``stream``
and ``consumer`` are what users hold. ``pull`` does the accounting of pull requests, ``fetch`` is one of them
with what it brings, and ``consuming`` keeps them open; ``push`` is what the server sends by itself.
``stored_message``, ``direct_get`` and ``backup`` read without a consumer. ``ordered`` and ``watch`` are made
of these. Begin with ``calls``, then ``consumer``.
"""
