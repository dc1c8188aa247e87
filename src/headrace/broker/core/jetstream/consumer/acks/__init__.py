"""What clients say about deliveries, and what follows from it.

``dispatch`` finds the consumer an acknowledgement is for, ``acks`` acts on it: done, refused, in progress,
terminated. What the consumer is done with is told to the retention of its stream once per tick.
"""
