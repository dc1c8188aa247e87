"""Publishing to streams: one message awaited, many in flight, or several at once.

``awaited`` sends one message and waits for its stream. ``publisher`` is the window that all publishers
have; ``window`` answers messages one by one (``wire_publisher`` as bytes, ``inprocess_publisher`` as
frames), with ``recovery`` for what is sent again; ``fast_publisher`` sends in fast batches.
``atomic_batch`` stores all or nothing. ``stream_of_subject`` asks who has a subject. The room is handed an
``Api``. Begin with ``publisher``, then ``window``.
"""
