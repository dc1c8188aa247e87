"""One stream: appending, reading, removing, and everything a flush does with it.

A log is handed the segments and subjects that recovery found, and a ``SegmentCache`` with what the file
streams of one storage share. Begin with ``log`` (the questions), then ``removals`` (removing, and taking
back what a failed flush had done) and ``file_log`` (the files). ``bulk`` removes by limit, some at a
time; ``compaction`` and ``chores`` give back room.
"""
