"""A streaming query that takes the surplus of a pull consumer's workers (priority policy ``overflow``).

The driver pulls with a mark, so the server hands it messages only while the workers are behind. What it was
handed makes a batch: the offset lists the sequences, and tasks read them from the stream, as often as need
be. While the batch runs, ``keeping`` tells the server that the messages are in work. When Spark has committed
the batch, they are acknowledged. ``offsets`` are pure; ``query`` is what Spark's calls reach; ``picking`` is
the tasks' side.
"""
