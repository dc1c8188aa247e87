"""Publishing to streams: one message awaited, many in flight, or several at once.

``publisher`` is the window that all publishers have, and how the commands of messages begin. How answers come
makes the difference: to each message (``window``, whose commands ``transports`` makes as bytes or as frames,
with ``recovery`` for what is sent again), or one for hundreds (``fast_publisher``). ``awaited`` sends one
message and waits for its stream; ``atomic_batch`` stores all or nothing. ``stream_of_subject`` asks who has a
subject. The room is handed an ``Api``. Begin with ``publisher``, then ``window``.
"""
