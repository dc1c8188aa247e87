"""A streaming query as a member of a partitioned consumer group (``headrace.groups``).

``offsets`` are pure; ``record`` reads what the group is; ``holding`` keeps other members away from its
partitions; ``query`` puts them together, for Spark's calls.

The query never pulls as other members do: a micro-batch is a range of sequences of the partitions that it
owns, which can be read again. It holds its partitions by consumers of the same names, paused for good.
Servers refuse a second consumer of a work queue's messages, and other members wait for the first to go. When
Spark has committed a batch, its messages are purged from the work queue, or the consumers moved behind them.
"""
