"""Sources and mirrors: copying from stream to stream within the server.

``copies`` has all of an account, gives them their turns, and knows how far a stream has come with all of its
own, across restarts and failed flushes; begin there. ``copy`` is one of them, ``feed`` what it gets through a
consumer of its origin.
"""
