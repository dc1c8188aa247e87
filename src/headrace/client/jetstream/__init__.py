"""Streams and consumers, as their user holds them, over a session of ``net``.

Every call of the JetStream API goes through ``calls.Api``. ``streams`` and ``consumers`` create, find and
list; ``stream`` and ``consumer`` are what they return. ``receiving`` is one batch of a pull consumer, or what
the server pushes. ``consuming`` keeps pulls open. ``stored`` reads without a consumer. ``ordered`` and
``watch`` are made of these. Begin with ``calls``, then ``consumer``.
"""
