"""The worker side: a task reads its slice of a stream and yields Arrow batches.

``read_slice`` leads; ``batch_builder`` makes batches of chunks, ``bad_messages`` says what becomes of those
that fit into no row. ``routing`` lets tasks that each need some partitions read a range together.
"""
