"""Streams and consumers, as their user holds them, over a session of ``net``.

Every call of the JetStream API goes through ``calls.Api``. ``streams`` and ``consumers`` create, find and
list; ``stream`` and ``consumer`` are what they return. There are three ways to receive: ``fetch`` asks for
one batch, ``consume`` keeps pulls open (``pull`` decides when to ask for more), ``push`` listens.
``ordered`` and ``watch`` are made of these. Begin with ``calls``, then ``consumer``.
"""
