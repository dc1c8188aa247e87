"""What a group is, as its record says it: names, partitions and who owns them, settings, a change. Pure.

It decides which member owns which partition, and what a record or a setting may be; it is handed nothing.
Begin reading at ``records``, then ``assignment``.
"""
