"""Key-value buckets, in the layout that all NATS clients share: a stream per bucket, a subject per key.

``config`` turns a bucket's settings into a stream's and back; ``keyvalue`` reads, changes and watches keys.
The room is handed an ``Api`` and a ``Stream``. Begin with ``keyvalue``.
"""
