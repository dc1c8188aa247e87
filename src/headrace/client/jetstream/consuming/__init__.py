"""A running consume: pulls that stay open, a buffer, and the handlers of what came.

``consume`` is what its user holds, with what follows when a callback fails; ``feed`` is what the session
holds, with who has a message in hand and whether the consumer is still there. Begin with these two.
``concurrent`` runs several callbacks at once, by the room ``handling``; ``answers`` has what they answer on
threads.

``renewing`` renews what waits or lets go of it, by the arithmetic of ``prefetch`` and the ``ack_wait`` that
the consumer has now. ``redelivered`` finds what a restarted server delivers twice.
"""
