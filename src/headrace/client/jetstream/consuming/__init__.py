"""A running consume: pulls that stay open, a buffer, and the handlers of what came.

``consume`` is what its user holds, ``feed`` what the session holds; begin with these two. ``concurrent``
runs several callbacks at once, by the room ``handling``; ``answers`` has what they answer on threads, and
``takers`` knows who has a message. ``failing`` says what follows when a callback fails.

``feed_settings`` says how messages that wait are looked after. ``renewing`` renews them or lets go of them,
by the arithmetic of ``prefetch`` and the time that ``ack_wait_changes`` asks for. ``redelivered`` finds
what a restarted server delivers twice; ``missing_consumer`` asks whether the consumer is still there.
"""
