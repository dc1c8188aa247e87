"""Sources and mirrors: copying from stream to stream within the server.

``copies`` has all of an account, and gives them their turns; begin there. ``copy`` is one of them, ``feed``
what it gets through a consumer of its origin. ``positions`` knows how far a stream has come with all of its
own, across restarts and failed flushes.
"""
