"""Whether a message may be stored, and as what: published alone, in an atomic batch or in a fast one.

``admission`` is the pipeline of checks; begin there. ``atomic_batches`` and ``fast_batches`` keep the open
batches of a stream, which they know as a ``ports.PublishTarget``; the others decide over one feature each:
repeated message ids, republishing.
"""
